// Drawings as SVG.

const SVG = "http://www.w3.org/2000/svg";
export const WIDTH = 600; // of a picture, which is drawn as wide as there is room

export function draw(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// A picture; `label` says in words what it shows.
export function picture(height, label, children, width = WIDTH) {
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...children);
}
