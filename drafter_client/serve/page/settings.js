// What a conversation is answered with: its fields on the page, and the members of a request that they are.

import { key, setKey } from "./api.js";
import { make } from "./dom.js";

const NUMBERS = [
  ["temperature", "Temperature", { min: 0, step: 0.1, placeholder: "1" }],
  ["top_p", "Top p", { min: 0, max: 1, step: 0.05, placeholder: "1" }],
  ["top_k", "Top k", { min: 0, step: 1, placeholder: "off" }],
  ["min_p", "Min p", { min: 0, max: 1, step: 0.01, placeholder: "off" }],
  ["repetition_penalty", "Repetition penalty", { min: 0, step: 0.05, placeholder: "1" }],
  ["max_tokens", "Max tokens", { min: 1, step: 1, placeholder: "1024" }],
  ["seed", "Seed", { step: 1, placeholder: "another each time" }],
  ["draft_n", "Draft tokens", { min: 0, step: 1, placeholder: "chosen for speed" }],
];
const MODES = [
  ["", "as the service was started"],
  ["auto", "auto: the fastest"],
  ["remote", "remote: this machine drafts"],
  ["fused", "fused: the verifier drafts"],
  ["off", "off: the target alone"],
];

// Fill `root` with fields for the settings; `changed` is called after each change.
export function show(root, settings, changed) {
  const take = (name, value) => {
    if (value === "") delete settings[name];
    else settings[name] = value;
    changed();
  };
  const labelled = (text, field, wide = false) => make("label", { className: wide ? "wide" : "" }, text, field);
  const system = make("textarea", { id: "system", rows: 2, dir: "auto", value: settings.system ?? "" });
  system.addEventListener("change", () => take("system", system.value));
  const mode = make("select", { id: "mode" }, ...MODES.map(([value, text]) => make("option", { value }, text)));
  mode.value = settings.mode ?? "";
  mode.addEventListener("change", () => take("mode", mode.value));
  const details = make(
    "select",
    { id: "token_details" },
    make("option", { value: "" }, "their sources"),
    make("option", { value: "decisions" }, "sources and probabilities"),
  );
  details.value = settings.token_details ?? "";
  details.addEventListener("change", () => take("token_details", details.value));
  const secret = make("input", { id: "key", autocomplete: "off", spellcheck: false, value: key() });
  secret.addEventListener("change", () => {
    setKey(secret.value.trim());
    changed();
  });
  const numbers = NUMBERS.map(([name, text, limits]) => {
    const field = make("input", { id: name, type: "number", value: settings[name] ?? "", ...limits });
    field.addEventListener("change", () => take(name, field.value === "" ? "" : Number(field.value)));
    return labelled(text, field);
  });
  root.replaceChildren(
    labelled("System prompt", system, true),
    labelled("Mode", mode),
    labelled("Told of tokens", details),
    ...numbers,
    labelled("API key of this drafter, kept in this browser", secret),
  );
}

// The members of a request.
export function members(settings) {
  const { system: _, mode, draft_n, token_details = "sources", ...sampling } = settings;
  const speculative = { ...(mode ? { mode } : {}), ...(draft_n === undefined ? {} : { draft_n }) };
  return { max_tokens: 1024, token_details, ...sampling, ...(Object.keys(speculative).length ? { speculative } : {}) };
}
