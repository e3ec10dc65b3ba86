// What a person does with a chart: pointing reads it, dragging chooses a part, keys do both.

const MIN_DRAG = 6; // pixels

class Gestures {
  constructor(chart) {
    Object.assign(this, { chart, view: chart.view });
    const plot = chart.plot;
    const place = (event) => event.clientX - plot.getBoundingClientRect().left;
    plot.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.button !== 0) return this.point(place(event));
      plot.setPointerCapture(event.pointerId);
      this.dragged = place(event);
    });
    plot.addEventListener("pointermove", (event) => {
      if (this.dragged === undefined) this.point(place(event)); else this.choose(place(event));
    });
    plot.addEventListener("pointerup", (event) => this.finishDrag(place(event)));
    plot.addEventListener("pointercancel", () => { this.dragged = undefined; this.leave(); });
    plot.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") this.leave(); });
    plot.addEventListener("dblclick", () => this.view.zoom(null));
    plot.addEventListener("keydown", (event) => this.key(event));
    plot.addEventListener("blur", () => this.leave());
  }

  point(place) {
    if (this.chart.drawn) this.view.moveCursor(this.chart, this.chart.snapped(place));
  }

  leave() {
    if (this.dragged === undefined) this.view.moveCursor(null, null);
  }

  // The part between where the pointer went down and where it is now.
  between(place) {
    return [this.dragged, place].map((at) => this.chart.inside(at)).sort((a, b) => a - b);
  }

  choose(place) {
    this.view.moveCursor(null, null);
    this.chart.showChosen(...this.between(place));
  }

  finishDrag(place) {
    if (this.dragged === undefined) return;
    const [start, end] = this.between(place);
    this.dragged = undefined;
    const { x } = this.chart;
    if (end - start >= MIN_DRAG) this.view.zoom([x.value(start), x.value(end)]);
    else this.point(place);
  }

  key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key in moves) this.moveBy(moves[event.key] * (event.shiftKey ? 10 : 1));
    else if (event.key === "+" || event.key === "=") this.zoomBy(0.5);
    else if (event.key === "-") this.zoomBy(2);
    else if (event.key === "Escape") this.view.zoom(null);
    else return;
    event.preventDefault();
  }

  moveBy(count) {
    const points = this.chart.drawn?.[0]?.points ?? [];
    if (!points.length) return;
    const { cursor } = this.view;
    const now = cursor === null ? (count > 0 ? -1 : points.length) : points.indexOf(nearest(points, cursor));
    const next = points[Math.max(0, Math.min(points.length - 1, now + count))];
    this.view.moveCursor(this.chart, next.x);
    this.view.speak(this.chart.spoken());
  }

  zoomBy(factor) {
    const { x } = this.chart;
    const middle = this.view.cursor ?? (x.low + x.high) / 2;
    const [low, high] = this.view.extent();
    const start = Math.max(low, middle - (middle - x.low) * factor);
    const end = Math.min(high, middle + (x.high - middle) * factor);
    this.view.zoom(start <= low && end >= high ? null : [start, end]);
  }
}
