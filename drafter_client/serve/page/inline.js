// Emphasis, code and links within a block of Markdown, as DOM nodes. HTML is text. Links lead to http, https and mailto only,
// and show where they lead; images are links.

import { make, visible } from "./dom.js";

const DEEPEST = 8; // levels of emphasis: what is deeper is text

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
