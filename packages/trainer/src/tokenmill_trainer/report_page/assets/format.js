// How figures are written in the charts.

const SIZES = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]];

// A few signs, for axes: 1.5B.
function short(value) {
  const [size, letter] = SIZES.find(([size]) => Math.abs(value) >= size) ?? [1, ""];
  const scaled = value / size;
  return (scaled !== 0 && Math.abs(scaled) < 1e-3 ? scaled.toExponential() : String(Number(scaled.toPrecision(6)))) + letter;
}

function whole(value) {
  return Math.round(value).toLocaleString("en-GB");
}

function number(value) {
  const size = Math.abs(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(4);
  return size >= 1e6 ? whole(value) : String(Number(value.toPrecision(6)));
}

// As it stands in a tip, with its unit.
function exact(value, unit) {
  switch (unit) {
    case "percent": return `${(100 * value).toFixed(2)} %`;
    case "bytes": return `${(value / 1e9).toFixed(3)} GB`;
    case "seconds": return value < 1 ? `${(1e3 * value).toPrecision(4)} ms` : `${value.toPrecision(4)} s`;
    case "count": return whole(value);
    default: return number(value);
  }
}

// As it stands at an axis.
function tick(value, unit) {
  switch (unit) {
    case "percent": return `${Number((100 * value).toPrecision(4))} %`;
    case "bytes": return `${Number((value / 1e9).toPrecision(4))} GB`;
    case "seconds": return `${number(value)} s`;
    default: return short(value);
  }
}
