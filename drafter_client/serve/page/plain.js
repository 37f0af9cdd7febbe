// A text as it is, with its line breaks, while it grows: what was shown stays, and what came is added.

import { make, visible } from "./dom.js";

const STEP = 4096; // characters that one call adds at most
const PART = 2048; // characters after which a part ends with the next line; a browser lays out each part by itself

export class PlainView {
  // `before`: words of the page that stand before the text.
  constructor(root, before = "") {
    this.root = root;
    this.before = before;
    this.clear();
  }

  clear() {
    this.root.replaceChildren();
    this.text = ""; // that is shown
    this.part = null; // the element that the next characters go into, and how many it has
    this.size = 0;
  }

  // Show `text`, which begins with what was shown before, or else is another one. Returns whether all of it is shown.
  update(text) {
    if (!text.startsWith(this.text)) this.clear();
    const shown = this.text.length;
    let end = Math.min(text.length, shown + STEP);
    if (end < text.length && /[\ud800-\udbff]/.test(text[end - 1])) end -= 1; // it is one character with the next
    this.text = text.slice(0, end);
    for (let at = shown; at < end; ) {
      if (this.part === null) this.begin();
      const full = text.indexOf("\n", at + Math.max(0, PART - this.size));
      const next = full < 0 || full >= end ? end : full + 1;
      this.part.append(...visible(text.slice(at, next)));
      this.size += next - at;
      if (next === full + 1) this.part = null;
      at = next;
    }
    return end === text.length;
  }

  begin() {
    this.part = make("div", {}, ...(this.root.childNodes.length ? [] : [this.before]));
    this.size = 0;
    this.root.append(this.part);
  }
}
