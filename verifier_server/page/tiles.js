// The numbers of the moment, each with its last minute.

import { make } from "./dom.js";
import { PER_SECOND, STEPS } from "./history.js";
import { percent, rate, time, whole } from "./numbers.js";
import { draw } from "./svg.js";

const HEIGHT = 32; // of a line
const RATES = 5; // seconds that a rate is of
const SHARES = 10; // seconds that a share is of

class Tile {
  constructor(label) {
    this.value = make("p", { className: "value" }, "–");
    this.note = make("p", { className: "note" });
    this.line = draw("path", { class: "line" });
    this.area = draw("path", { class: "area" });
    const box = { viewBox: `0 0 ${STEPS} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" };
    this.node = make("div", { className: "tile" }, make("h3", {}, label), this.value, this.note, draw("svg", box, this.area, this.line));
  }

  // `series`: values, null where there is none. `top`: the value at the top of the line, or a greater one that occurs.
  show(value, note, series, top) {
    if (this.value.textContent !== value) this.value.textContent = value;
    if (this.note.textContent !== note) this.note.textContent = note;
    const most = Math.max(top, ...series);
    const y = (each) => (HEIGHT - 1 - (each / most) * (HEIGHT - 3)).toFixed(1);
    let line = "";
    let area = "";
    series.forEach((each, at) => {
      if (each === null) return;
      const before = series[at - 1] ?? null;
      line += before === null ? `M${at} ${y(each)}h1` : `L${at + 1} ${y(each)}`;
      area += `M${at} ${HEIGHT}V${y(before ?? each)}L${at + 1} ${y(each)}V${HEIGHT}Z`;
    });
    this.line.setAttribute("d", line);
    this.area.setAttribute("d", area);
  }
}

export class Tiles {
  constructor(place) {
    const labels = ["Tokens a second", "Draft tokens accepted", "Engine busy", "Queue", "Sessions in use", "KV cache"];
    this.tiles = labels.map((label) => new Tile(label));
    place.append(...this.tiles.map((each) => each.node));
  }

  // `state`: the last one; `history`: of the last minute.
  draw(state, history) {
    const [tokens, accepted, busy, queue, sessions, cache] = this.tiles;
    const engine = state?.engine;
    if (!engine) {
      for (const each of this.tiles) each.show("–", "", [], 1);
      return;
    }
    const [committed, seconds] = history.over(RATES, "committed");
    const perSecond = history.series((step) => step.committed * PER_SECOND);
    tokens.show(rate(committed / seconds), `${whole(state.generated_tokens)} since the start`, perSecond, 1);
    const [judged] = history.over(SHARES, "judged");
    const [kept] = history.over(SHARES, "accepted");
    const shares = history.series((step) => (step.judged ? step.accepted / step.judged : null));
    accepted.show(percent(kept, judged), judged ? `${whole(kept)} of ${whole(judged)} in ${SHARES} s` : "none judged lately", shares, 1);
    const [used, of] = history.over(RATES, "busy");
    const share = Math.min(1, used / (1000 * of));
    busy.show(percent(share, 1), used ? `in passes, of ${RATES} s` : "no passes lately", history.series((step) => (step.busy * PER_SECOND) / 1000), 1);
    const waited = history.most(SHARES, "waited");
    const longest = waited ? `waited up to ${time(waited)}` : `at most ${whole(state.most_waiting)}`;
    queue.show(whole(engine.waiting), `${whole(engine.running)} in the pass; ${longest}`, history.series((step) => step.waiting), 4);
    const held = `${whole(state.sessions)} held, at most ${whole(state.most_sessions)}`;
    sessions.show(whole(state.sessions_in_use), held, history.series((step) => step.sessions), 4);
    const full = engine.slots * engine.context_length;
    const slots = `${whole(engine.slots_in_use)} of ${whole(engine.slots)} slots in use`;
    const lost = engine.evictions ? `; ${whole(engine.evictions)} lost theirs` : "";
    cache.show(percent(engine.cached_tokens, full), `${slots}${lost}`, history.series((step) => step.cached), 1);
  }
}
