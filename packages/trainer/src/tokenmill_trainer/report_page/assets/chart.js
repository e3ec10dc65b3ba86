// One chart: draws its curves into an SVG and shows the values under the cursor.
//
//   curves ─▶ points ─▶ scales ─▶ paths            when the view changes (`draw`)
//   cursor ─▶ nearest points ─▶ line, dots, tip    when the pointer or an arrow key moves (`showCursor`)
//   gestures.js ─▶ which cursor, which part

const MARGIN = { left: 58, right: 10, top: 10, bottom: 22 };
const SETTLING = 0.02; // share of the x axis whose values need not fit into the frame
const REACH = 12; // pixels from which a point is still meant

class Chart {
  constructor(figure, spec, runs, view) {
    Object.assign(this, { spec, runs, view });
    this.figure = figure;
    this.plot = figure.querySelector(".plot");
    this.svg = element("svg", { role: "img", "aria-label": spec.title }, this.plot);
    this.tip = html("div", "tip", this.plot);
    this.tip.hidden = true;
    new Gestures(this);
  }

  get isLines() {
    return this.spec.kind === "lines";
  }

  // Curves of the runs that are shown, with their points.
  visible() {
    const { axis, hidden, smoothing } = this.view;
    const curves = this.spec.curves.filter((curve) => !hidden.has(curve.run));
    const places = (curve) => this.runs[curve.run][curve.points];
    const amount = this.spec.smooth ? smoothing : 0;
    if (this.isLines)
      return curves.map((curve) => ({ curve, points: pointsOf(curve, places(curve), axis, amount) }));
    if (!curves.length) return [];
    const layers = stacked(curves, places(curves[0]), axis, amount, this.spec.kind === "shares");
    return curves.map((curve, number) => ({ curve, points: layers[number] }));
  }

  draw() {
    this.figure.hidden = this.spec.curves.every((curve) => this.view.hidden.has(curve.run));
    const [width, height] = [this.plot.clientWidth, this.plot.clientHeight];
    if (!width) return;
    this.size = { width, height, right: width - MARGIN.right, bottom: height - MARGIN.bottom };
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const domain = this.view.domain ?? this.view.extent();
    this.log = this.spec.log && this.view.log;
    this.drawn = this.visible().map(({ curve, points }) => ({ curve, all: points, points: within(points, domain) }));
    this.x = new Scale(...domain, MARGIN.left, this.size.right);
    this.y = new Scale(...this.yDomain(domain), this.size.bottom, MARGIN.top, this.log);
    this.drawAxes();
    const clip = `clip-${this.spec.chart}`;
    const inner = { x: MARGIN.left, y: 0, width: this.size.right - MARGIN.left + 5, height: this.size.bottom };
    element("rect", inner, element("clipPath", { id: clip }, this.svg));
    this.area = element("g", { "clip-path": `url(#${clip})` }, this.svg);
    for (const part of this.drawn) this.isLines ? this.drawLine(part) : this.drawLayer(part);
    this.drawMarks();
    this.overlay = element("g", {}, this.svg);
    this.showCursor();
  }

  yDomain([first, high]) {
    if (this.spec.kind === "shares") return [0, 1];
    const low = this.spec.settles && !this.view.domain ? first + SETTLING * (high - first) : first;
    const ends = [];
    for (const { points } of this.drawn)
      for (const point of points) {
        if (point.x < low || point.x > high) continue;
        if (this.isLines) ends.push(point.low, point.high); else ends.push(point.top);
      }
    const usable = this.log ? ends.filter((value) => value > 0) : ends;
    if (!usable.length) return this.log ? [0.1, 1] : [0, 1];
    const bottom = this.isLines ? usable.reduce((a, b) => Math.min(a, b)) : 0;
    const top = usable.reduce((a, b) => Math.max(a, b));
    if (this.log) return [bottom / 1.03, top * 1.03];
    const space = 0.05 * (top - bottom) || Math.abs(top) * 0.1 || 1;
    return [this.isLines && (bottom < 0 || bottom > space) ? bottom - space : Math.min(bottom, 0), top + space];
  }

  drawAxes() {
    const { right, bottom, width, height } = this.size;
    const heights = this.y.ticks(height > 260 ? 6 : 4);
    const texts = labels(heights, this.spec.kind === "shares" ? "percent" : this.spec.unit);
    heights.forEach((value, number) => {
      const y = this.y.place(value);
      element("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y, y2: y }, this.svg);
      element("text", { x: MARGIN.left - 8, y: y + 4, "text-anchor": "end" }, this.svg, texts[number]);
    });
    element("line", { class: "axis", x1: MARGIN.left, x2: right, y1: bottom, y2: bottom }, this.svg);
    const places = this.x.ticks(Math.max(2, Math.floor(width / 90)));
    const names = labels(places, "number");
    places.forEach((value, number) => {
      const x = this.x.place(value);
      const anchor = x > right - 16 ? "end" : "middle";
      element("text", { x, y: height - 6, "text-anchor": anchor }, this.svg, names[number]);
    });
  }

  path(points, height) {
    let path = "", pen = "M";
    for (const point of points) {
      const value = height(point);
      if (this.log && !(value > 0)) { pen = "M"; continue; }
      path += `${pen}${this.x.place(point.x).toFixed(1)} ${this.y.place(value).toFixed(1)}`;
      pen = "L";
    }
    return path;
  }

  // There along the one height and back along the other.
  outline(points, upper, lower) {
    const there = this.path(points, upper);
    const back = this.path([...points].reverse(), lower);
    return there && back ? `${there}${back.replace("M", "L")}Z` : "";
  }

  drawLine({ curve, points }) {
    const group = element("g", { class: colourClass(curve.colour) }, this.area);
    const clamp = (value) => (this.log ? Math.max(value, this.y.low) : value);
    if (curve.low)
      element("path", { class: "band", d: this.outline(points, (p) => p.high, (p) => clamp(p.low)) }, group);
    else if (this.view.smoothing && this.spec.smooth)
      element("path", { class: "raw", d: this.path(points, (p) => p.y) }, group);
    element("path", { class: "line", d: this.path(points, (p) => p.smooth) }, group);
    if (points.length > 60 || (points.length > 1 && this.spec.smooth)) return;
    for (const point of points)
      if (!this.log || point.y > 0)
        element("circle", { class: "dot", r: 3, cx: this.x.place(point.x), cy: this.y.place(point.y) }, group);
  }

  drawLayer({ curve, points }) {
    const group = element("g", { class: colourClass(curve.colour) }, this.area);
    element("path", { class: "layer", d: this.outline(points, (p) => p.top, (p) => p.bottom) }, group);
  }

  // Events of the runs, at the upper edge.
  drawMarks() {
    if (this.spec.byName) return;
    this.view.marks().forEach(({ run, x, text }) => {
      const place = this.x.place(x);
      const shape = { class: `mark ${colourClass(run)}`, d: `M${place - 4} 0h8l-4 7z` };
      element("title", {}, element("path", shape, this.area), text);
    });
  }

  // The points that lie at the view's cursor, one of each curve that reaches there.
  atCursor() {
    const { cursor } = this.view;
    const found = [];
    for (const { curve, all } of this.drawn ?? []) {
      const point = nearest(all, cursor);
      if (!point) continue;
      const inside = cursor >= all[0].x && cursor <= all[all.length - 1].x;
      const away = Math.abs(this.x.place(point.x) - this.x.place(cursor));
      if (inside || away <= REACH) found.push({ curve, point });
    }
    return found;
  }

  showCursor() {
    this.overlay?.replaceChildren();
    this.tip.hidden = true;
    const { cursor } = this.view;
    if (cursor === null || !this.overlay || cursor < this.x.low || cursor > this.x.high) return;
    const found = this.atCursor();
    if (!found.length) return;
    const place = this.x.place(cursor);
    element("line", { class: "cursor", x1: place, x2: place, y1: 0, y2: this.size.bottom }, this.overlay);
    for (const { curve, point } of found) {
      const [x, y] = [this.x.place(point.x), this.y.place(this.isLines ? point.smooth : point.top)];
      if (Number.isFinite(y) && x >= MARGIN.left - 1 && x <= this.size.right + 1)
        element("circle", { class: `dot ${colourClass(curve.colour)}`, r: 4, cx: x, cy: y }, this.overlay);
    }
    if (this.view.active === this) this.showTip(found, place);
  }

  showTip(found, place) {
    this.tip.replaceChildren();
    const head = this.where(found[0]);
    html("b", "", this.tip, head);
    const rows = this.isLines ? found : [...found].reverse();
    for (const { curve, point } of rows) {
      const row = html("div", "", this.tip);
      html("i", `swatch ${colourClass(curve.colour)}`, row);
      const own = this.where({ curve, point });
      html("span", "name", row, own === head ? curve.label : `${curve.label}, ${own}`);
      html("span", "value", row, this.value(curve, point));
    }
    this.tip.hidden = false;
    const left = place > this.size.width / 2 ? place - this.tip.offsetWidth - 14 : place + 14;
    const room = this.size.width - this.tip.offsetWidth;
    this.tip.style.transform = `translate(${Math.max(Math.min(0, room), Math.min(left, Math.max(0, room)))}px, 8px)`;
  }

  value(curve, point) {
    const unit = this.spec.kind === "shares" ? "percent" : this.spec.unit;
    const mean = exact(point.y, unit);
    return curve.low ? `${mean} (${exact(point.low, unit)} to ${exact(point.high, unit)})` : mean;
  }

  // The step or steps of a point, and the tokens after them.
  where({ curve, point }) {
    const places = this.runs[curve.run][curve.points];
    const last = places.steps[point.index];
    const first = places.first?.[point.index] ?? last;
    const steps = first === last ? `step ${whole(last)}` : `steps ${whole(first)}–${whole(last)}`;
    const tokens = places.tokens[point.index];
    return tokens ? `${steps}, ${short(tokens, 4)} tokens` : steps;
  }

  // What a screen reader says of the cursor.
  spoken() {
    const found = this.atCursor();
    if (!found.length) return "";
    const values = found.map(({ curve, point }) => `${curve.label} ${this.value(curve, point)}`);
    return `${this.spec.title}, ${this.where(found[0])}: ${values.join("; ")}`;
  }

  // x of the point that is nearest to a place on the screen.
  snapped(place) {
    const x = this.x.value(this.inside(place));
    let best = null;
    for (const { all } of this.drawn) {
      const point = nearest(all, x);
      if (point && (best === null || Math.abs(point.x - x) < Math.abs(best - x))) best = point.x;
    }
    return best;
  }

  // The place on the x axis that is nearest to one on the screen.
  inside(place) {
    return Math.max(MARGIN.left, Math.min(place, this.size.right));
  }

  showChosen(start, end) {
    const shape = { class: "chosen", x: start, y: 0, width: end - start, height: this.size.bottom };
    this.overlay.replaceChildren(element("rect", shape));
  }
}
