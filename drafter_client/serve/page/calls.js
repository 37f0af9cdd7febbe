// Calls of tools in an answer, and their results, which the user writes.

import { make, visible } from "./dom.js";
import { line as coloured } from "./highlight.js";

// Take in the calls of a stream's delta: `calls` are `[{id, name, arguments}]`.
export function grow(calls, deltas) {
  for (const each of deltas) {
    const call = (calls[each.index] ??= { id: "", name: "", arguments: "" });
    call.id ||= each.id ?? "";
    call.name ||= each.function?.name ?? "";
    call.arguments += each.function?.arguments ?? "";
  }
  return calls;
}

export function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

// Arguments to read: JSON on several lines; what is none, or not whole yet, as it was written.
export function pretty(text) {
  return isJson(text) ? JSON.stringify(JSON.parse(text), null, 2) : text;
}

// A card for each call. `answer`: called with the results, one for each, once the user sends them; null: they are given.
export class CallsView {
  constructor(root, answer) {
    this.root = root;
    this.answer = answer;
    this.cards = []; // `{node, shown, code, field, label}`
    this.send = null;
  }

  // Show `calls`, which grow. `whole`: whether the answer has ended, so that results can be given.
  update(calls, whole) {
    while (this.cards.length > calls.length) this.cards.pop().node.remove();
    calls.forEach((call, at) => {
      this.cards[at] ??= this.card(call, at);
      const card = this.cards[at];
      if (card.shown !== call.arguments) {
        card.shown = call.arguments;
        card.code.replaceChildren(...code(pretty(call.arguments)));
      }
      card.label.hidden = !whole || this.answer === null;
    });
    if (whole && this.answer !== null && calls.length && this.send === null) this.offer();
  }

  card(call, at) {
    const code = make("code");
    const field = make("textarea", { rows: 2, spellcheck: false, dir: "auto", "aria-label": `Result of ${call.name}` });
    const label = make("label", { hidden: true }, "Result", field);
    const name = make("strong", {}, ...visible(call.name));
    const title = make("p", {}, `Call ${at + 1}: `, name);
    const node = make("div", { className: "call", role: "group", "aria-label": `Call ${at + 1}: ${call.name}` }, title, make("pre", {}, code), label);
    this.root.append(node);
    return { node, shown: null, code, field, label };
  }

  offer() {
    this.send = make("button", { type: "button" }, this.cards.length > 1 ? "Send the results" : "Send the result");
    this.send.addEventListener("click", () => this.answer(this.cards.map((each) => each.field.value)));
    this.root.append(this.send);
  }

  // Where the user writes first.
  focus() {
    this.cards[0]?.field.focus();
  }
}

// Lines of JSON in colours.
function code(text) {
  const nodes = [];
  let left = "";
  for (const each of text.split("\n")) {
    const [found, open] = coloured(each, "json", left);
    if (nodes.length) nodes.push("\n");
    nodes.push(...found);
    left = open;
  }
  return nodes;
}
