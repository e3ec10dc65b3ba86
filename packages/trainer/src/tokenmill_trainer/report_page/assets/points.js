// The points of a curve: those that have a value, smoothed, and found again by their place on the x axis.

// Points of `curve` over `axis` ("steps" or "tokens") with y as recorded and, for lines, smoothed.
function pointsOf(curve, places, axis, smoothing) {
  const points = [];
  curve.y.forEach((y, index) => {
    if (y === null) return;
    const [low, high] = curve.low ? [curve.low[index], curve.high[index]] : [y, y];
    points.push({ x: places[axis][index], index, y, low, high, smooth: y });
  });
  const means = smoothed(points.map((point) => point.y), smoothing * points.length);
  points.forEach((point, index) => { point.smooth = means[index]; });
  return points;
}

// Running mean over about `span` values with exponentially fading weights, unbiased from the first value on.
function smoothed(values, span) {
  const keep = 1 - 1 / Math.max(span, 1);
  let total = 0, weight = 0;
  return values.map((value) => {
    total = keep * total + value;
    weight = keep * weight + 1;
    return total / weight;
  });
}

// The index of the first of `points` that is not before `x`.
function firstFrom(points, x) {
  let [low, high] = [0, points.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle].x < x) low = middle + 1; else high = middle;
  }
  return low;
}

function nearest(points, x) {
  const after = firstFrom(points, x);
  const [a, b] = [points[after - 1], points[after]];
  if (!a || !b) return a ?? b;
  return x - a.x < b.x - x ? a : b;
}

// Those within the domain, and one on each side so that lines run to the edge.
function within(points, [low, high]) {
  const start = Math.max(0, firstFrom(points, low) - 1);
  let end = firstFrom(points, high);
  while (end < points.length && points[end].x <= high) end++;
  return points.slice(start, end + 1);
}

// Layers on top of each other: each point's `bottom` and `top`; with `shares`, of a whole that is 1.
function stacked(layers, places, axis, smoothing, shares) {
  const xs = places[axis];
  const span = smoothing * xs.length;
  const heights = layers.map((layer) => smoothed(layer.y.map((y) => y ?? 0), span));
  const wholes = xs.map((_, index) => heights.reduce((sum, height) => sum + height[index], 0));
  const raw = xs.map((_, index) => layers.reduce((sum, layer) => sum + (layer.y[index] ?? 0), 0));
  const floor = xs.map(() => 0);
  return layers.map((layer, number) => xs.map((x, index) => {
    const bottom = floor[index];
    floor[index] += shares ? heights[number][index] / (wholes[index] || 1) : heights[number][index];
    const y = (layer.y[index] ?? 0) / (shares ? raw[index] || 1 : 1);
    return { x, index, y, low: y, high: y, bottom, top: floor[index] };
  }));
}
