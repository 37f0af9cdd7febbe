// A message on the page.

import { CallsView } from "./calls.js";
import { make, visible } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { TokensView, legend } from "./tokens.js";

const NAMES = { user: "You", assistant: "The target", tool: "Result" };

// The view of one message. `edit`: called with the new text of a message of the user's. `around`: is called with what
// draws it anew, and calls that. `results`: called with the results of its calls, once the user sends them; null: they are
// given.
export class MessageView {
  constructor(message, edit, around, results = null) {
    this.message = message;
    this.around = around;
    this.thoughts = make("div", { className: "thoughts", dir: "auto" });
    this.text = make("div", { className: message.role === "assistant" ? "text" : "plain", dir: "auto" });
    this.markdown = message.role === "assistant" ? new MarkdownView(this.text) : null;
    this.calls = make("div");
    this.byCall = new CallsView(this.calls, results);
    this.tokens = make("div", { className: "plain tokens", dir: "auto", hidden: true });
    this.detail = make("p", { className: "detail", "aria-live": "polite" });
    this.legend = make("div", { hidden: true }, legend(), this.detail);
    this.byToken = new TokensView(this.tokens, (nodes) => this.detail.replaceChildren(...nodes));
    this.foot = make("div", { className: "tools" });
    const name = message.name ? `${NAMES[message.role]} of ${message.name}` : NAMES[message.role];
    this.node = make("article", { className: message.role, "aria-label": name });
    this.node.append(make("h2", {}, ...visible(name)), this.thoughts, this.text, this.tokens, this.legend, this.calls, this.foot);
    if (edit) this.foot.append(this.editButton(edit));
    this.drawn = 0; // the frame that is due
    this.draw();
  }

  // Whether the answer is being written: a screen reader waits for its end.
  set busy(value) {
    this.writing = value;
    this.node.setAttribute("aria-busy", String(value));
  }

  // Show the answer by its tokens, where they are known, or as Markdown.
  set sources(value) {
    this.showsTokens = value;
    this.draw();
  }

  // Draw with the next frame, however many parts come until then.
  grow() {
    if (this.drawn) return;
    this.drawn = requestAnimationFrame(() => this.around(() => this.draw()));
  }

  draw() {
    cancelAnimationFrame(this.drawn);
    this.drawn = 0;
    const { content, thoughts, problem, ended, timings, continued, away, waited } = this.message;
    const byToken = Boolean(this.showsTokens && this.message.tokens?.length);
    this.text.hidden = this.thoughts.hidden = byToken;
    this.tokens.hidden = this.legend.hidden = !byToken;
    if (byToken) this.byToken.update(this.message.tokens);
    else if (this.markdown === null) this.text.replaceChildren(...visible(content));
    else if (continued) {
      this.text.className = "plain";
      this.text.replaceChildren(...visible(content));
    } else this.markdown.update(content);
    this.thoughts.replaceChildren(...(thoughts ? ["thoughts: ", ...visible(thoughts)] : []));
    this.byCall.update(this.message.calls ?? [], !this.writing);
    if (this.message.role !== "assistant") return;
    const notes = [];
    if (continued) notes.push("This model has no chat template: it continues the text.");
    if (ended === "length") notes.push("Cut by a limit: see Max tokens.");
    if (waited) notes.push(`The verifier was away for ${waited.toFixed(0)} s; then the answer went on.`);
    if (timings?.predicted_per_second) notes.push(`${timings.predicted_per_second.toFixed(1)} tokens/s`);
    if (timings?.draft_n) notes.push(`${timings.draft_n_accepted} of ${timings.draft_n} draft tokens accepted`);
    const shown = notes.map((each) => make("span", {}, each));
    if (away) {
      const seconds = Math.max(0, (Date.now() - away.since) / 1000).toFixed(0);
      shown.push(make("strong", { className: "problem" }, ...visible(`waiting for the verifier (${away.why}) … ${seconds} s`)));
    }
    if (problem) shown.push(make("strong", { className: "problem" }, ...visible(problem)));
    this.foot.replaceChildren(...shown);
  }

  editButton(edit) {
    const button = make("button", { type: "button" }, "Edit");
    button.addEventListener("click", () => {
      const field = make("textarea", { value: this.message.content, rows: 3, "aria-label": "Edited message", dir: "auto" });
      const ask = make("button", { type: "button" }, "Ask again");
      const leave = make("button", { type: "button" }, "Leave as it was");
      ask.addEventListener("click", () => edit(field.value));
      leave.addEventListener("click", () => {
        this.text.replaceChildren(...visible(this.message.content));
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
