// Makes elements. Text becomes text nodes, nothing is ever read as HTML.

// An element with properties and children; strings among the children are text.
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

export function byId(id) {
  return document.getElementById(id);
}

// Control characters but line breaks and tabs, and those that turn the direction of what follows.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\u200b\u2060-\u2064\ufeff]/u;

// A text of a model as nodes: what would be invisible or reorder other text is shown by its number.
export function visible(text) {
  const nodes = [];
  let rest = text;
  for (let found = HIDDEN.exec(rest); found !== null; found = HIDDEN.exec(rest)) {
    if (found.index > 0) nodes.push(document.createTextNode(rest.slice(0, found.index)));
    const number = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    nodes.push(make("span", { className: "escaped" }, `U+${number}`));
    rest = rest.slice(found.index + 1);
  }
  if (rest) nodes.push(document.createTextNode(rest));
  return nodes;
}
