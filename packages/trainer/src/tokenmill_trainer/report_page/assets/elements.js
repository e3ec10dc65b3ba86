// Elements of SVG and HTML; what they say is only ever text.

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes, parent, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}

function html(name, className, parent, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  parent?.append(made);
  return made;
}

function colourClass(colour) {
  return `c${colour === null ? "x" : colour % 10}`;
}
