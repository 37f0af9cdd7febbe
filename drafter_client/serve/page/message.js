// A message on the page.

import { CallsView } from "./calls.js";
import { make, visible } from "./dom.js";
import { drawSoon } from "./frames.js";
import { MarkdownView } from "./markdown.js";
import { PlainView } from "./plain.js";
import { TokensView, legend } from "./tokens.js";

const NAMES = { user: "You", assistant: "The target", tool: "Result" };

// The view of one message. `edit`: called with the new text of a message of the user's. `results`: called with the
// results of its calls, once the user sends them; null: they are given.
export class MessageView {
  constructor(message, edit, results = null) {
    this.message = message;
    this.thoughts = make("div", { className: "thoughts" });
    this.thought = new PlainView(this.thoughts, "thoughts: ");
    this.text = make("div", { className: "text" });
    this.said = message.role === "assistant" ? new MarkdownView(this.text) : this.asPlain();
    this.calls = make("div");
    this.byCall = new CallsView(this.calls, results);
    this.tokens = make("div", { className: "plain tokens", hidden: true });
    this.detail = make("p", { className: "detail", "aria-live": "polite", hidden: true });
    this.legend = null; // until it is needed
    this.byToken = new TokensView(this.tokens, (nodes) => this.detail.replaceChildren(...nodes));
    this.foot = make("div", { className: "tools" });
    const name = message.name ? `${NAMES[message.role]} of ${message.name}` : NAMES[message.role];
    this.node = make("article", { className: message.role, "aria-label": name });
    this.node.append(make("h2", {}, ...visible(name)), this.thoughts, this.text, this.tokens, this.detail, this.calls, this.foot);
    if (edit) this.foot.append(this.editButton(edit));
  }

  // Whether the answer is being written: a screen reader waits for its end.
  set busy(value) {
    this.writing = value;
    this.node.setAttribute("aria-busy", String(value));
  }

  // Show the answer by its tokens, where they are known, or as Markdown.
  set sources(value) {
    this.showsTokens = value;
    drawSoon(this);
  }

  // Draw what is not on the page yet, or a bounded part of it. Returns whether that was all.
  slice() {
    const { content, thoughts, continued, calls, tokens } = this.message;
    const byToken = Boolean(this.showsTokens && tokens?.length);
    this.switchTo(byToken);
    if (continued && this.said instanceof MarkdownView) this.said = this.asPlain();
    const all = byToken ? this.byToken.update(tokens) : this.thought.update(thoughts ?? "") && this.said.update(content);
    if (!all) return false;
    this.byCall.update(calls ?? [], !this.writing);
    if (this.message.role === "assistant") this.note();
    return true;
  }

  asPlain() {
    this.text.className = "plain";
    return new PlainView(this.text);
  }

  switchTo(byToken) {
    if (this.tokens.hidden === !byToken) return;
    this.text.hidden = this.thoughts.hidden = byToken;
    this.tokens.hidden = this.detail.hidden = !byToken;
    if (this.legend === null) this.detail.after((this.legend = legend()));
    this.legend.hidden = !byToken;
  }

  // What is to be said of an answer as a whole.
  note() {
    const { problem, ended, timings, continued, away, waited } = this.message;
    const notes = [];
    const bad = [];
    if (continued) notes.push("This model has no chat template: it continues the text.");
    if (ended === "length") notes.push("Cut by a limit: see Max tokens.");
    if (waited) notes.push(`The verifier was away for ${waited.toFixed(0)} s; then the answer went on.`);
    if (timings?.predicted_per_second) notes.push(`${timings.predicted_per_second.toFixed(1)} tokens/s`);
    if (timings?.draft_n) notes.push(`${timings.draft_n_accepted} of ${timings.draft_n} draft tokens accepted`);
    if (away) {
      const seconds = Math.max(0, (Date.now() - away.since) / 1000).toFixed(0);
      bad.push(`waiting for the verifier (${away.why}) … ${seconds} s`);
    }
    if (problem) bad.push(problem);
    const noted = JSON.stringify([notes, bad]);
    if (noted === this.noted) return;
    this.noted = noted;
    const problems = bad.map((each) => make("strong", { className: "problem" }, ...visible(each)));
    this.foot.replaceChildren(...notes.map((each) => make("span", {}, each)), ...problems);
  }

  editButton(edit) {
    const button = make("button", { type: "button" }, "Edit");
    button.addEventListener("click", () => {
      const field = make("textarea", { value: this.message.content, rows: 3, "aria-label": "Edited message", dir: "auto" });
      const ask = make("button", { type: "button" }, "Ask again");
      const leave = make("button", { type: "button" }, "Leave as it was");
      ask.addEventListener("click", () => edit(field.value));
      leave.addEventListener("click", () => {
        this.said.clear();
        drawSoon(this);
        this.foot.replaceChildren(button);
        button.focus();
      });
      this.text.replaceChildren(field);
      this.foot.replaceChildren(ask, leave);
      field.focus();
    });
    return button;
  }
}
