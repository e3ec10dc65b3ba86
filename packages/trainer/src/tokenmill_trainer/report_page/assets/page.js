// The page: what all charts have in common, and the controls that change it.

const data = JSON.parse(document.getElementById("report-data").textContent);

// Events of all runs, with their places on either axis.
const marks = data.runs.flatMap((run, number) => {
  const { steps, tokens } = run.training;
  const points = steps.map((x) => ({ x }));
  return run.marks.map(([step, kind]) => ({
    run: number,
    steps: step,
    tokens: tokens[Math.min(firstFrom(points, step), steps.length - 1)] ?? 0,
    text: `${run.label}, step ${whole(step)}: ${kind}`,
  }));
});

const view = {
  axis: "steps",
  log: false,
  smoothing: 0.03, // share of a curve's points
  hidden: new Set(), // numbers of runs
  domain: null, // part of the x axis that is shown, or all
  cursor: null, // a value of the x axis
  active: null, // the chart that the cursor is in

  // From the first to the last point of the runs that are shown.
  extent() {
    const xs = data.runs.flatMap((run, number) => (this.hidden.has(number) ? [] : ends(run, this.axis)));
    if (!xs.length) return [0, 1];
    const [low, high] = [Math.min(...xs), Math.max(...xs)];
    return low < high ? [low, high] : [low - 1, high + 1];
  },

  // Events of the runs that are shown.
  marks() {
    return marks.filter(({ run }) => !this.hidden.has(run)).map(({ run, text, [this.axis]: x }) => ({ run, x, text }));
  },

  moveCursor(chart, x) {
    if (this.cursor === x && this.active === chart) return;
    Object.assign(this, { active: chart, cursor: x });
    charts.forEach((each) => each.showCursor());
  },

  zoom(domain) {
    Object.assign(this, { domain, cursor: null, active: null });
    redraw();
  },

  speak(text) {
    document.getElementById("spoken").textContent = text;
  },
};

function ends(run, axis) {
  return [run.training, run.validation].flatMap(({ [axis]: xs }) => (xs.length ? [xs[0], xs[xs.length - 1]] : []));
}

const charts = [...document.querySelectorAll("[data-chart]")].map(
  (figure) => new Chart(figure, data.charts[Number(figure.dataset.chart)], data.runs, view),
);

let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    document.getElementById("reset").hidden = view.domain === null;
    charts.forEach((chart) => chart.draw());
  });
}

function control() {
  const [log, smoothing] = [document.getElementById("log"), document.getElementById("smoothing")];
  document.querySelectorAll("[name=axis]").forEach((choice) => choice.addEventListener("change", () => {
    view.axis = choice.value;
    view.zoom(null);
  }));
  log.addEventListener("change", () => { view.log = log.checked; redraw(); });
  smoothing.addEventListener("input", () => {
    view.smoothing = Number(smoothing.value) / 100;
    document.querySelector("output").textContent = `${smoothing.value} %`;
    redraw();
  });
  document.querySelectorAll("[data-run]").forEach((choice) => choice.addEventListener("change", () => {
    view.hidden[choice.checked ? "delete" : "add"](Number(choice.dataset.run));
    redraw();
  }));
  document.getElementById("reset").addEventListener("click", () => view.zoom(null));
  document.getElementById("bar").hidden = false;
}

if (charts.length) {
  control();
  new ResizeObserver(redraw).observe(document.querySelector("main"));
}
