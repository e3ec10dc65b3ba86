// How figures are written in the charts.

const SIZES = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]];

// In a few signs, such as 1.5B.
function short(value, digits) {
  if (value !== 0 && Math.abs(value) < 1e-3) return Number(value.toPrecision(digits)).toExponential();
  const [size, letter] = SIZES.find(([size]) => Math.abs(value) >= size) ?? [1, ""];
  return String(Number((value / size).toPrecision(digits))) + letter;
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
    case "seconds": return value && value < 1 ? `${(1e3 * value).toPrecision(4)} ms` : `${value.toPrecision(4)} s`;
    case "count": return whole(value);
    default: return number(value);
  }
}

// Round values as they stand at an axis, with as many digits as tell them apart.
function labels(values, unit) {
  for (let digits = 3; ; digits++) {
    const texts = values.map((value) => label(value, unit, digits));
    if (digits === 12 || new Set(texts).size === texts.length) return texts;
  }
}

function label(value, unit, digits) {
  const brief = (number) => String(Number(number.toPrecision(digits)));
  switch (unit) {
    case "percent": return `${brief(100 * value)} %`;
    case "bytes": return `${brief(value / 1e9)} GB`;
    case "seconds": return `${brief(value)} s`;
    default: return short(value, digits);
  }
}
