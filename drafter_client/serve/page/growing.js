// Blocks of Markdown that grow line by line: what is whole stays, only the last line, row or item is made anew.
//
// Each has its `node`, and `head`: how many lines have to be whole so that it is what it seems to be. `update(lines)` shows
// the lines from its first one on, of which the last may be unfinished, and returns which line is the first behind it.

import { make } from "./dom.js";
import { line as coloured } from "./highlight.js";
import { inline } from "./inline.js";

const PART = 48; // lines of code after which a new part begins; a browser lays out each part by itself

// A fence.
export class Code {
  // `opening`: the match of its first line: the mark and the language.
  constructor(opening) {
    this.head = 1;
    this.mark = new RegExp(`^ {0,3}${opening[1][0]}{${opening[1].length},}\\s*$`);
    this.language = opening[2].toLowerCase();
    this.element = make("code");
    this.node = make("pre", { tabIndex: 0 }, this.element); // it scrolls, which has to be possible with keys
    if (opening[2]) {
      this.node.setAttribute("role", "group"); // a `pre` alone takes no name
      this.node.setAttribute("aria-label", `code, ${opening[2]}`);
    }
    this.whole = 0; // lines that stay
    this.left = ""; // what they leave open
    this.last = null; // the line behind them
    this.part = null;
  }

  update(lines) {
    const end = lines.findIndex((each, at) => at > this.whole && this.mark.test(each));
    this.show(lines.slice(1, end < 0 ? lines.length : end), end < 0 ? 1 : 0);
    return end < 0 ? lines.length : end + 1;
  }

  // `unfinished`: how many lines at the end may not be whole.
  show(lines, unfinished) {
    this.forgetLast();
    for (const text of lines.slice(this.whole)) {
      const [nodes, left] = coloured(text, this.language, this.left);
      const ended = this.whole < lines.length - unfinished;
      const node = make("span", {}, ...nodes, ended ? "\n" : "");
      this.place(lines[this.whole - 1]).append(node);
      if (ended) {
        this.whole += 1;
        this.left = left;
      } else this.last = node;
    }
  }

  forgetLast() {
    if (this.last === null) return;
    this.last.remove();
    this.last = null;
    if (this.part.hasChildNodes()) return;
    this.part.remove();
    this.part = this.element.lastChild;
  }

  // The part for the next line. `before`: the line before it; an empty one at the end of a part would not be seen.
  place(before) {
    if (this.part === null || (this.part.childNodes.length >= PART && before)) {
      this.part = make("span", { className: "part" });
      this.element.append(this.part);
    }
    return this.part;
  }
}

export class Table {
  constructor(first, isRow) {
    this.head = 2;
    this.isRow = isRow;
    this.body = make("tbody");
    this.node = make("table", {}, make("thead", {}, row(first, "th")), this.body);
    this.whole = 0; // rows that stay
  }

  update(lines) {
    while (this.body.childNodes.length > this.whole) this.body.lastChild.remove();
    let next = this.head + this.whole;
    for (; next < lines.length && this.isRow(lines[next]); next += 1) {
      this.body.append(row(lines[next], "td"));
      if (next < lines.length - 1) this.whole += 1;
    }
    return next;
  }
}

function row(text, cell) {
  return make("tr", {}, ...cells(text).map((each) => make(cell, { dir: "auto" }, ...inline(each))));
}

function cells(text) {
  const inner = text.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.split(/(?<!\\)\|/).map((each) => each.trim().replaceAll("\\|", "|"));
}

export class List {
  // `first`: the match of the first item's line: indent and mark. `itemOf`: the match of another line that is an item of
  // the same list, or null. `nodesOf`: the nodes of an item's lines.
  constructor(first, itemOf, nodesOf) {
    this.head = 1;
    this.itemOf = itemOf;
    this.nodesOf = nodesOf;
    this.width = first[1].length + 2; // what is indented by as much belongs to the item
    const ordered = /\d/.test(first[2]);
    this.node = make(ordered ? "ol" : "ul", ordered ? { start: Number.parseInt(first[2], 10) } : {});
    this.begins = []; // the line with which each item begins
  }

  update(lines) {
    let next = this.begins.pop() ?? 0;
    this.node.lastChild?.remove(); // the last item may have grown
    for (let item; next < lines.length && (item = this.itemOf(lines[next])) !== null; ) {
      this.begins.push(next);
      const inner = [item[3] ?? ""];
      for (next += 1; next < lines.length && this.within(lines, next); next += 1) {
        inner.push(lines[next].trim() ? lines[next].slice(this.width) : "");
      }
      this.node.append(make("li", { dir: "auto" }, ...this.nodesOf(inner)));
      while (next + 1 < lines.length && !lines[next].trim() && this.itemOf(lines[next + 1]) !== null) next += 1;
    }
    return next;
  }

  // Whether a line belongs to the item before it.
  within(lines, at) {
    if (lines[at].trim()) return /^\s*/.exec(lines[at])[0].length >= this.width;
    return at + 1 < lines.length && /^\s{2,}\S/.test(lines[at + 1]);
  }
}
