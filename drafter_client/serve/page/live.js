// What the pair does: the stream of its events, while the panel is open, and what the panel shows of it.

import { TargetAlone, aloneParts } from "./alone.js";
import { follow } from "./api.js";
import { byId, make, visible } from "./dom.js";
import { chart, lanes } from "./lanes.js";

const DRAW_EVERY = 500; // milliseconds: each drawing takes time of a processor that may be drafting
const KEPT = 60; // rounds, and points of the chart
const SAID = {
  ready: "ready",
  overloaded: "busy: further texts wait",
  draining: "stopping: no new texts",
  verifier_away: "the verifier is away: texts wait for it, and go on when it is back",
  model_mismatch: "the verifier serves a model that cannot be drafted for",
  loading: "loading",
  failed: "failed",
};

export class LivePanel {
  // `measure`: as for `TargetAlone`.
  constructor(panel, measure) {
    this.panel = panel;
    this.alone = new TargetAlone(measure);
    this.rounds = [];
    this.points = []; // share of draft tokens accepted, and tokens a round, between two counts
    this.counts = new Map(); // the last ones of each text
    this.abort = null;
    panel.addEventListener("toggle", () => (panel.open ? this.listen() : this.abort?.abort()));
    if (panel.open) this.listen();
  }

  // Take the events until the panel is closed.
  listen() {
    this.abort?.abort();
    this.abort = new AbortController();
    const lost = (failure) => this.say(failure?.message ?? "The service stops.");
    follow("events", this.abort.signal, (name, data) => this.take(name, data), lost);
  }

  take(name, data) {
    if (name === "state") {
      const texts = `${data.texts} text${data.texts === 1 ? "" : "s"} under way, ${data.waiting} waiting`;
      this.say(`${SAID[data.status] ?? data.status}; ${texts}${data.reason ? ` (${data.reason})` : ""}`);
      const drafter = data.draft_model ? `${data.draft_model} drafts` : "nothing drafts on this machine";
      byId("pair").replaceChildren(...visible(`${data.model}; ${drafter}`));
      this.alone.state(data);
    } else if (name === "round") {
      this.rounds = [...this.rounds, data].slice(-KEPT);
    } else if (name === "counts") this.count(data);
    else if (name === "ended") {
      this.counts.delete(data.text);
      this.alone.ended(data.text);
      if (data.why || data.finish_reason) {
        byId("why").replaceChildren(...visible(`Why this mode: ${data.why || "it was chosen: only mode auto compares them"}`));
      }
    }
    this.due ||= setTimeout(() => this.draw(), DRAW_EVERY);
  }

  count(now) {
    const before = this.counts.get(now.text);
    this.counts.set(now.text, now);
    this.alone.count(now);
    if (!before || now.at_ms <= before.at_ms) return;
    const grown = (name) => now[name] - before[name];
    if (!grown("generated")) return;
    const point = {
      rate: grown("drafted") ? grown("accepted") / grown("drafted") : null,
      tokens: grown("rounds") ? 1 + grown("accepted") / grown("rounds") : null,
      speed: (1000 * grown("generated")) / (now.at_ms - before.at_ms),
      mode: now.mode,
    };
    this.points = [...this.points, point].slice(-KEPT);
  }

  say(text) {
    byId("condition").replaceChildren(...visible(text));
  }

  draw() {
    this.due = 0;
    const last = this.points.at(-1);
    if (last) {
      const share = last.rate === null ? "nothing was drafted" : `${(100 * last.rate).toFixed(0)} % of the draft tokens accepted`;
      const round = last.tokens === null ? "" : `, ${last.tokens.toFixed(1)} tokens a round`;
      byId("now").textContent = `mode ${last.mode}: ${last.speed.toFixed(1)} tokens/s, ${share}${round}`;
    }
    byId("chart").replaceChildren(chart(this.points.map((each) => each.rate), undefined, byId("chart").clientWidth));
    byId("lanes").replaceChildren(lanes(this.rounds, byId("lanes").clientWidth));
  }
}

// The panel's elements.
export function panelParts() {
  const line = (id) => make("p", { id });
  return [
    line("condition"),
    line("pair"),
    line("now"),
    line("why"),
    ...aloneParts(),
    make("h2", {}, "Acceptance rate, 0 to 100 %"),
    make("div", { id: "chart" }),
    make("h2", {}, "The last rounds"),
    make("div", { id: "lanes" }),
    make("p", { className: "key" }, "drafting on this machine; on the wire; in the verifier's queue; in its pass"),
  ];
}
