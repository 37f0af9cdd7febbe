// Markdown as DOM nodes, for a text that grows: blocks that have ended stay as they are, only the last one is made anew or
// grows.
//
// It reads what models write: headings, paragraphs, lists, quotations, tables, rules, fences; what is within them is read
// by `inline.js`.

import { make } from "./dom.js";
import { Code, List, Table } from "./growing.js";
import { inline } from "./inline.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])\s*(?:\1\s*){2,}$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*))?$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const ROW = /^\s*\|?.*\|.*$/;
const UNDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const DEEPEST = 8; // levels of lists and quotations: what is deeper is text
const STEP = 2048; // characters that one call adds at most

// A text in `root` as it grows.
export class MarkdownView {
  constructor(root) {
    this.root = root;
    this.clear();
  }

  clear() {
    this.root.replaceChildren();
    this.text = ""; // that is shown
    this.settled = 0; // characters whose blocks stay
    this.kept = 0; // children of the root that show them
    this.open = null; // the block behind them, if it grows: the next child
  }

  // Show `text`, which begins with what was shown before, or else is another one. Returns whether all of it is shown.
  update(text) {
    if (!text.startsWith(this.text)) this.clear();
    if (text.length > this.text.length) {
      this.text = text.slice(0, this.text.length + STEP);
      this.draw(this.text.slice(this.settled).split("\n"));
    }
    return this.text.length === text.length;
  }

  draw(lines) {
    let next = this.open?.update(lines) ?? 0;
    const found = this.open ? [{ first: 0, open: this.open }] : [];
    const staying = this.kept + found.length;
    while (this.root.childNodes.length > staying) this.root.lastChild.remove();
    while (next < lines.length) {
      if (lines[next].trim()) {
        const made = block(lines, next, 0);
        this.root.append(made.node);
        found.push({ first: next, open: made.open });
        next = made.next;
      } else next += 1;
    }
    this.settle(lines, found);
  }

  // A block has ended once the first line of the one behind it is whole.
  settle(lines, found) {
    const last = found.findLastIndex((each, at) => at === 0 || each.first < lines.length - 1);
    if (last < 0) return;
    const { first, open } = found[last];
    this.settled += lines.slice(0, first).reduce((sum, each) => sum + each.length + 1, 0);
    this.kept += last;
    this.open = open && first + open.head < lines.length ? open : null;
  }
}

// The nodes of lines.
function blocks(lines, depth) {
  const nodes = [];
  for (let at = 0; at < lines.length; ) {
    if (lines[at].trim()) {
      const { node, next } = block(lines, at, depth);
      nodes.push(node);
      at = next;
    } else at += 1;
  }
  return nodes;
}

// The block that begins with a line, the line behind it, and itself, if it can grow.
function block(lines, at, depth) {
  const text = lines[at];
  const opening = FENCE.exec(text);
  if (opening) return growing(new Code(opening), lines, at);
  const heading = HEADING.exec(text);
  if (heading) {
    const level = Math.min(6, heading[1].length + 2); // the page has the first two
    return { node: make(`h${level}`, { dir: "auto" }, ...inline(heading[2])), next: at + 1 };
  }
  if (RULE.test(text)) return { node: make("hr"), next: at + 1 };
  if (depth < DEEPEST && QUOTE.test(text)) {
    let next = at;
    const inner = [];
    while (next < lines.length && QUOTE.test(lines[next])) inner.push(QUOTE.exec(lines[next++])[1]);
    return { node: make("blockquote", { dir: "auto" }, ...blocks(inner, depth + 1)), next };
  }
  if (depth < DEEPEST && ITEM.test(text)) return growing(list(text, depth), lines, at);
  if (isRow(text) && at + 1 < lines.length && UNDER.test(lines[at + 1]) && lines[at + 1].includes("-")) {
    return growing(new Table(text, isRow), lines, at);
  }
  return paragraph(lines, at, depth);
}

function growing(open, lines, at) {
  const next = at + open.update(at ? lines.slice(at) : lines);
  return { node: open.node, next, open };
}

function isRow(text) {
  return text.trim() !== "" && ROW.test(text);
}

function list(text, depth) {
  const first = ITEM.exec(text);
  const ordered = /\d/.test(first[2]);
  const itemOf = (line) => {
    const found = ITEM.exec(line);
    const deeper = found ? found[1].length - first[1].length : -1;
    return deeper >= 0 && deeper <= 1 && /\d/.test(found[2]) === ordered && !RULE.test(line) ? found : null;
  };
  return new List(first, itemOf, (inner) => tight(blocks(inner, depth + 1)));
}

// The nodes of an item: its first paragraph stands without an element of its own.
function tight(nodes) {
  if (nodes[0]?.localName === "p") return [...nodes[0].childNodes, ...nodes.slice(1)];
  return nodes;
}

function paragraph(lines, at, depth) {
  let next = at + 1;
  while (next < lines.length && lines[next].trim()) {
    const text = lines[next];
    if (FENCE.test(text) || HEADING.test(text) || RULE.test(text)) break;
    if (depth < DEEPEST && (QUOTE.test(text) || ITEM.test(text))) break;
    next += 1;
  }
  return { node: make("p", { dir: "auto" }, ...inline(lines.slice(at, next).join("\n"))), next };
}
