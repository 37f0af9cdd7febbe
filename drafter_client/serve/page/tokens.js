// An answer token by token, each in the colour and with the underline of its source.

import { make, visible } from "./dom.js";

// The sources as the readout has them, in the order of the legend.
export const SOURCES = {
  accepted: "drafted, and accepted by the target",
  recovered: "the target's, in place of a rejected draft token",
  bonus: "the target's, without a draft token at its place",
  target_decoded: "decoded by the verifier by itself before a draft came",
  head: "predicted by the target's own head before a draft came, and accepted",
  forced: "the only one that the grammar allowed",
};

// Where draft tokens came from, if not from the draft model. Accepted ones have a mark of their own.
const DRAFTED = {
  lookup: "looked up in the text",
  prediction: "taken from your prediction of the text",
  corpus: "looked up in your files",
  grammar: "the only one that the grammar allowed",
  head: "predicted by the target's own head",
};

export function legend() {
  const item = (kind, name, meaning) => make("li", {}, make("span", { className: `token ${kind}` }, name), ` ${meaning}`);
  const accepted = Object.entries(DRAFTED).map(([source, meaning]) => item(`accepted ${source}`, `accepted, ${source}`, meaning));
  const [first, ...others] = Object.entries(SOURCES).map(([source, meaning]) => item(source, source.replace("_", "-"), meaning));
  return make("ul", { className: "legend", "aria-label": "Sources of tokens" }, first, ...accepted, ...others);
}

// The classes of a token's element.
function kind({ source, draft_source: drafted }) {
  return `token ${source ?? ""}${source === "accepted" && drafted in DRAFTED ? ` ${drafted}` : ""}`;
}

// What is known of a token, in words. It is made of text alone.
export function described(token) {
  const { source, decision, draft_source: drafted } = token;
  const parts = [`${JSON.stringify(token.text)}: ${source ? `${source.replace("_", "-")}, ${SOURCES[source]}` : "of unknown source"}`];
  const proposed = drafted === "model" ? "from the draft model" : DRAFTED[drafted];
  if (proposed) parts.push(`${source === "accepted" ? "it" : "the rejected draft token"} was ${proposed}`.replace("was from", "came from"));
  if (token.top !== null) parts.push(ranked(token)); // null: nobody could know
  if (decision) {
    const share = (value) => `${(100 * value).toFixed(1)} %`;
    parts.push(`probability with the target ${share(decision.p)}`);
    if (decision.draft !== null) {
      const drafter = decision.q === null ? "" : `, with the drafter ${share(decision.q)}`;
      parts.push(
        `draft token ${JSON.stringify(decision.draft)} ${decision.verdict}: with the target ${share(decision.draft_p)}${drafter}`,
      );
    }
  }
  return parts.join("; ");
}

// The rank of a token with the target, and the likeliest ones there: `top` has their texts and probabilities.
function ranked({ top, rank, kept }) {
  if (!top) return kept ? "rank and probabilities are not kept" : "rank not known: it is told with probabilities, see Settings";
  const likeliest = top.map(([text, share]) => `${JSON.stringify(text)} ${(100 * share).toFixed(1)} %`).join(", ");
  return `${rank ? `rank ${rank}` : `rank beyond ${top.length}`} with the target, whose likeliest are ${likeliest}`;
}

const STEP = 128; // tokens that one call adds at most
// Tokens after which a part ends with a line, with a sentence, or with a word. A browser lays out and paints each part by
// itself, so one more token costs the same at the end of a long answer. A part of a long line begins on a line of its own.
const LINES = 128;
const SENTENCES = 256;
const WORDS = 384;

// The tokens of an answer, which grow. One stop of the Tab key: arrows go from token to token.
export class TokensView {
  // `told`: is called with the description of the token that is pointed at, as nodes.
  // `describe`: what is known of a token, in words; a report knows more.
  constructor(root, told, describe = described) {
    this.root = root;
    this.told = told;
    this.describe = describe;
    this.shown = []; // tokens
    this.spans = []; // one for each
    this.part = null; // the element that the next token goes into, and how many it has
    this.size = 0;
    this.at = -1;
    root.tabIndex = 0;
    root.setAttribute("role", "group");
    root.setAttribute("aria-label", "Answer by tokens: arrow keys go from one to the next");
    root.addEventListener("pointerover", (event) => {
      const span = event.target.closest?.(".token");
      if (span && root.contains(span)) this.point(this.spans.indexOf(span));
    });
    root.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step || !this.shown.length) return;
      event.preventDefault();
      this.point(Math.min(Math.max(this.at + step, 0), this.shown.length - 1));
      this.spans[this.at].scrollIntoView({ block: "nearest" });
    });
  }

  // Show `tokens`, which begin with those that were shown before. Returns whether all of them are shown.
  update(tokens) {
    for (const token of tokens.slice(this.shown.length, this.shown.length + STEP)) this.add(token);
    return this.shown.length === tokens.length;
  }

  add(token) {
    if (this.part === null || this.isFull(this.shown.at(-1).text, token.text)) {
      this.root.append((this.part = make("div")));
      this.size = 0;
    }
    const span = make("span", { className: kind(token) }, ...visible(token.text));
    this.part.append(span);
    this.size += 1;
    this.spans.push(span);
    this.shown.push(token);
  }

  // Whether the part ends between two tokens.
  isFull(before, next) {
    if (this.size < LINES) return false;
    if (before.endsWith("\n")) return true;
    return (this.size >= SENTENCES && /[.!?;:,}]\s*$/.test(before)) || (this.size >= WORDS && /^\s/.test(next)) || this.size >= 2 * WORDS;
  }

  point(at) {
    this.spans[this.at]?.classList.remove("current");
    this.at = at;
    this.spans[at].classList.add("current");
    this.told(visible(this.describe(this.shown[at])));
  }
}
