// What the target alone makes, as it was measured, beside what the pair makes: a line, and a button that measures.

import { Failure } from "./api.js";
import { byId, make, visible } from "./dom.js";

const ENOUGH = 16; // tokens that a measurement has at least

export class TargetAlone {
  // `measure(signal)`: has the target write a short text alone, and returns its timings.
  constructor(measure) {
    this.measure = measure;
    this.measured = null; // `{speed, how}`, the latest
    this.pair = null; // `{speed, mode}` of the last text that was drafted for
    this.first = new Map(); // of each text, the first counts of its present mode
    this.abort = null; // of the measurement under way
    this.timed = new Set(); // texts that were written while one was: its timings say more than counts
    byId("measure").addEventListener("click", () => this.run());
  }

  // Take in what the service has measured in mode auto, where it has.
  state({ target_alone: found }) {
    if (!found) return;
    const how = found.remembered ? "measured in an earlier run over such a link" : "measured in mode auto over this link";
    const told = `${found.tokens_per_second}, ${how}`;
    if (this.told !== told) this.measured = { speed: found.tokens_per_second, how };
    this.told = told; // a later measurement of another kind stays until this one changes
    this.show();
  }

  count(now) {
    if (this.abort && now.mode === "target") this.timed.add(now.text);
    if (this.first.get(now.text)?.mode !== now.mode) this.first.set(now.text, now);
    const first = this.first.get(now.text);
    const tokens = now.generated - first.generated;
    const speed = (1000 * tokens) / (now.at_ms - first.at_ms);
    if (!tokens || !Number.isFinite(speed)) return;
    if (now.mode !== "target") this.pair = { speed, mode: now.mode };
    else if (tokens >= ENOUGH - 1 && !this.timed.has(now.text)) this.take(speed, tokens + 1);
    this.show();
  }

  take(speed, tokens) {
    const time = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    this.measured = { speed, how: `measured at ${time} with ${tokens} tokens in mode target` };
  }

  ended(text) {
    this.first.delete(text);
    this.timed.delete(text);
  }

  // End a measurement: an answer would disturb it, and it the answer.
  stop() {
    this.abort?.abort();
  }

  async run() {
    this.abort = new AbortController();
    byId("measure").disabled = true;
    this.say("The target writes 32 tokens alone…");
    try {
      const { predicted_ms: took, predicted_n: tokens } = await this.measure(this.abort.signal);
      this.take((1000 * (tokens - 1)) / took, tokens); // it took so long behind the first token
    } catch (error) {
      if (error instanceof Failure) return this.say(`The target alone could not be measured: ${error.message}`);
      if (error.name !== "AbortError") throw error;
      this.say("The measurement ended for an answer.");
    } finally {
      byId("measure").disabled = false;
      this.abort = null;
    }
    this.show();
  }

  show() {
    if (this.measured === null) return;
    const { speed, how } = this.measured;
    const parts = [`The target alone: ${speed.toFixed(1)} tokens/s, ${how}.`];
    if (this.pair) {
      const times = (this.pair.speed / speed).toFixed(2);
      parts.push(`The last text in mode ${this.pair.mode}: ${this.pair.speed.toFixed(1)} tokens/s, ${times} times as fast.`);
    }
    this.say(parts.join(" "));
  }

  say(text) {
    byId("alone").replaceChildren(...visible(text));
  }
}

// Its elements.
export function aloneParts() {
  return [
    make("p", { id: "alone", "aria-live": "polite" }, "The target alone: not measured yet."),
    make("p", {}, make("button", { id: "measure", type: "button" }, "Measure the target alone")),
  ];
}
