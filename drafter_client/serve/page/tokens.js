// An answer token by token, each in the colour and with the underline of its source.

import { make, visible } from "./dom.js";

// The sources as the readout has them, in the order of the legend.
export const SOURCES = {
  accepted: "drafted, and accepted by the target",
  recovered: "the target's, in place of a rejected draft token",
  bonus: "the target's, without a draft token at its place",
  target_decoded: "decoded by the verifier by itself before a draft came",
  forced: "the only one that the grammar allowed",
};

export function legend() {
  const items = Object.entries(SOURCES).map(([source, meaning]) =>
    make("li", {}, make("span", { className: `token ${source}` }, source.replace("_", "-")), ` ${meaning}`),
  );
  return make("ul", { className: "legend", "aria-label": "Sources of tokens" }, ...items);
}

// What is known of a token, in words. It is made of text alone.
export function described(token) {
  const { source, decision } = token;
  const parts = [`${JSON.stringify(token.text)}: ${source ? `${source.replace("_", "-")}, ${SOURCES[source]}` : "of unknown source"}`];
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

// The tokens of an answer, which grow. One stop of the Tab key: arrows go from token to token.
export class TokensView {
  // `told`: is called with the description of the token that is pointed at, as nodes.
  // `describe`: what is known of a token, in words.
  constructor(root, told, describe = described) {
    this.root = root;
    this.told = told;
    this.describe = describe;
    this.shown = []; // tokens
    this.spans = []; // one for each
    this.line = null; // the element that the next token goes into: a browser lays out only that one anew
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
    });
  }

  // Show `tokens`, which begin with those that were shown before.
  update(tokens) {
    for (const token of tokens.slice(this.shown.length)) {
      if (this.line === null) this.root.append((this.line = make("div", { dir: "auto" })));
      const span = make("span", { className: `token ${token.source ?? ""}` }, ...visible(token.text));
      this.line.append(span);
      this.spans.push(span);
      this.shown.push(token);
      if (token.text.endsWith("\n")) this.line = null;
    }
  }

  point(at) {
    this.spans[this.at]?.classList.remove("current");
    this.at = at;
    this.spans[at].classList.add("current");
    this.told(visible(this.describe(this.shown[at])));
  }
}
