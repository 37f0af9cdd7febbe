// Markdown as DOM nodes, for a text that grows: blocks that have ended stay as they are, only the last one is made anew.
//
// It reads what models write: headings, paragraphs, lists, quotations, tables, rules, fences; emphasis, code and links.
// HTML is text. Links lead to http, https and mailto only, and show where they lead; images are links.

import { make, visible } from "./dom.js";
import { line as coloured } from "./highlight.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])\s*(?:\1\s*){2,}$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*))?$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const ROW = /^\s*\|?.*\|.*$/;
const UNDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const DEEPEST = 8; // levels of lists and quotations: what is deeper is text

// A text in `root` as it grows.
export class MarkdownView {
  constructor(root) {
    this.root = root;
    this.text = "";
    this.settled = 0; // characters whose blocks stay
    this.kept = 0; // children of the root that show them
    this.code = null; // the open fence at the end
  }

  // Show `text`, which begins with what was shown before, or else is another one.
  update(text) {
    if (!text.startsWith(this.text)) {
      this.root.replaceChildren();
      Object.assign(this, { settled: 0, kept: 0, code: null });
    }
    this.text = text;
    const lines = text.slice(this.settled).split("\n");
    if (this.code === null || !this.code.update(lines)) {
      while (this.root.childNodes.length > this.kept) this.root.lastChild.remove();
      this.code = null;
      const { nodes, last, first } = blocks(lines, 0);
      this.root.append(...nodes);
      if (last) {
        this.settled += lines.slice(0, first).reduce((sum, each) => sum + each.length + 1, 0);
        this.kept = this.root.childNodes.length - 1;
        this.code = last.open ?? null;
      }
    }
  }
}

// A fence that may grow line by line.
class Code {
  constructor(opening) {
    this.mark = opening[1];
    this.language = opening[2].toLowerCase();
    this.element = make("code");
    this.node = make("pre", { tabIndex: 0 }, this.element); // it scrolls, which has to be possible with keys
    if (opening[2]) {
      this.node.setAttribute("role", "group"); // a `pre` alone takes no name
      this.node.setAttribute("aria-label", `code, ${opening[2]}`);
    }
    this.whole = 0; // lines that are complete
    this.left = ""; // what the complete lines leave open
  }

  // Show the lines from the opening one on. Returns false once the fence has ended.
  update(lines) {
    const end = this.end(lines);
    if (end >= 0) return false;
    this.show(lines.slice(1));
    return true;
  }

  end(lines) {
    const mark = new RegExp(`^ {0,3}${this.mark[0]}{${this.mark.length},}\\s*$`);
    return lines.findIndex((each, at) => at > this.whole && mark.test(each));
  }

  show(lines) {
    while (this.element.childNodes.length > this.whole) this.element.lastChild.remove();
    lines.slice(this.whole).forEach((text, at, rest) => {
      const [nodes, left] = coloured(text, this.language, this.left);
      const ended = at < rest.length - 1;
      this.element.append(make("span", {}, ...nodes, ended ? "\n" : ""));
      if (ended) {
        this.whole += 1;
        this.left = left;
      }
    });
  }
}

// The nodes of lines, the last block, and the line with which that begins.
function blocks(lines, depth) {
  const nodes = [];
  let last = null;
  let first = 0;
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    first = at;
    last = block(lines, at, depth);
    nodes.push(last.node);
    at = last.next;
  }
  return { nodes, last, first };
}

function block(lines, at, depth) {
  const text = lines[at];
  const opening = FENCE.exec(text);
  if (opening) return fence(lines, at, opening);
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
    return { node: make("blockquote", { dir: "auto" }, ...blocks(inner, depth + 1).nodes), next };
  }
  if (depth < DEEPEST && ITEM.test(text)) return list(lines, at, depth);
  if (ROW.test(text) && at + 1 < lines.length && UNDER.test(lines[at + 1]) && lines[at + 1].includes("-")) {
    return table(lines, at);
  }
  return paragraph(lines, at, depth);
}

function fence(lines, at, opening) {
  const code = new Code(opening);
  const inner = lines.slice(at);
  const end = code.end(inner);
  code.show(end < 0 ? inner.slice(1) : inner.slice(1, end));
  return end < 0 ? { node: code.node, next: lines.length, open: code } : { node: code.node, next: at + end + 1 };
}

function list(lines, at, depth) {
  const [, indent, mark] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(mark);
  const node = make(ordered ? "ol" : "ul", ordered ? { start: Number.parseInt(mark, 10) } : {});
  let next = at;
  while (next < lines.length) {
    const item = ITEM.exec(lines[next]);
    if (!item || item[1].length > indent.length + 1 || item[1].length < indent.length) break;
    if (/\d/.test(item[2]) !== ordered || RULE.test(lines[next])) break;
    const width = indent.length + 2;
    const inner = [item[3] ?? ""];
    next += 1;
    while (next < lines.length) {
      const blank = !lines[next].trim();
      const deeper = /^\s*/.exec(lines[next])[0].length >= width;
      if (blank ? !(next + 1 < lines.length && /^\s{2,}\S/.test(lines[next + 1])) : !deeper) break;
      inner.push(blank ? "" : lines[next].slice(width));
      next += 1;
    }
    node.append(make("li", { dir: "auto" }, ...tight(inner, depth)));
    while (next + 1 < lines.length && !lines[next].trim() && ITEM.test(lines[next + 1])) next += 1;
  }
  return { node, next };
}

// The nodes of an item: its first paragraph stands without an element of its own.
function tight(lines, depth) {
  const { nodes } = blocks(lines, depth + 1);
  if (nodes[0]?.localName === "p") return [...nodes[0].childNodes, ...nodes.slice(1)];
  return nodes;
}

function table(lines, at) {
  const row = (text, cell) => make("tr", {}, ...cells(text).map((each) => make(cell, { dir: "auto" }, ...inline(each))));
  const body = make("tbody");
  let next = at + 2;
  while (next < lines.length && lines[next].trim() && ROW.test(lines[next])) body.append(row(lines[next++], "td"));
  return { node: make("table", {}, make("thead", {}, row(lines[at], "th")), body), next };
}

function cells(text) {
  const inner = text.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.split(/(?<!\\)\|/).map((each) => each.trim().replaceAll("\\|", "|"));
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

const INLINE = new RegExp(
  [
    "(?<code>(?<ticks>`+)(?<coded>(?:[^`]|(?!\\k<ticks>)`)+?)\\k<ticks>(?!`))",
    "(?<link>(?<image>!?)\\[(?<shown>[^\\[\\]\\n]{0,500})\\]\\((?<to>[^\\s()]{1,2000})(?:\\s+\"[^\"\\n]{0,200}\")?\\))",
    "(?<strong>(?<twice>\\*\\*|__)(?=\\S)(?<bold>[^\\n]{1,2000}?\\S|\\S)\\k<twice>)",
    "(?<em>(?<![\\w*])\\*(?=[^\\s*])(?<leaning>[^*\\n]{1,2000}?)\\*(?!\\w))",
    "(?<del>~~(?=\\S)(?<gone>[^~\\n]{1,2000})~~)",
    "(?<url>\\bhttps?://[^\\s<>()\\[\\]`\"']{1,2000}[^\\s<>()\\[\\]`\"'.,;:!?])",
    "(?<escape>\\\\(?<mark>[\\\\`*_{}\\[\\]()#+.!~|<>-]))",
    "(?<br> {2,}\\n|\\\\\\n)",
  ].join("|"),
  "gu",
);

// The nodes of a text within a block.
export function inline(text, depth = 0) {
  if (depth > DEEPEST) return visible(text);
  const nodes = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > at) nodes.push(...visible(text.slice(at, found.index)));
    at = found.index + found[0].length;
    const part = found.groups;
    if (part.code !== undefined) nodes.push(make("code", {}, ...visible(part.coded)));
    else if (part.link !== undefined) nodes.push(...link(part, found[0], depth));
    else if (part.strong !== undefined) nodes.push(make("strong", {}, ...inline(part.bold, depth + 1)));
    else if (part.em !== undefined) nodes.push(make("em", {}, ...inline(part.leaning, depth + 1)));
    else if (part.del !== undefined) nodes.push(make("del", {}, ...inline(part.gone, depth + 1)));
    else if (part.url !== undefined) nodes.push(anchor(part.url, visible(part.url)));
    else if (part.br !== undefined) nodes.push(make("br"));
    else nodes.push(...visible(part.mark));
  }
  if (at < text.length) nodes.push(...visible(text.slice(at)));
  return nodes;
}

function link(part, written, depth) {
  const address = address_of(part.to);
  if (address === null) return visible(written); // it leads nowhere: shown as the model wrote it
  const shown = part.image ? visible(`image: ${part.shown || part.to}`) : inline(part.shown, depth + 1);
  return [anchor(address.href, shown), make("small", {}, `(${address.host || address.href})`)];
}

function address_of(text) {
  try {
    const address = new URL(text);
    return ["http:", "https:", "mailto:"].includes(address.protocol) ? address : null;
  } catch {
    return null; // no whole address
  }
}

function anchor(href, shown) {
  return make("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...shown);
}
