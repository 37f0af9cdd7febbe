// The last passes as they come: how long each took, and what it was made of. Newest on the right.

import { make } from "./dom.js";
import { counted, quantile, time, whole } from "./numbers.js";
import { draw } from "./svg.js";

export const SHOWN = 120; // passes
const HEIGHT = 60; // of a row
const PARTS = [
  // of the tokens of a pass, from below: class, name, how many
  ["pending", "last tokens of the texts", (each) => Math.max(0, each.tokens - each.prefilled - each.judged)],
  ["accepted", "draft tokens accepted", (each) => each.accepted],
  ["rejected", "draft tokens rejected", (each) => each.judged - each.accepted],
  ["prompt", "prompts, and texts read again", (each) => each.prefilled],
];

const NONE = "No passes yet.";
const HINT = "Point at a pass, or choose one with the arrow keys.";

const sorted = (values) => [...values].sort((one, other) => one - other);

function described(each) {
  const drafts = each.judged ? `, ${each.accepted} of ${counted(each.judged, "draft token")} accepted` : "";
  const read = each.prefilled ? `, ${whole(each.prefilled)} read without judging` : "";
  const waited = each.queue_ms >= 1 ? `; a request had waited ${time(each.queue_ms)}` : "";
  const size = `${counted(each.tokens, "token")} of ${counted(each.sessions, "session")}`;
  return `${time(each.took_ms)} for ${size}${read}${drafts}; ${counted(each.committed, "token")} committed${waited}`;
}

export class Strip {
  constructor(place) {
    this.passes = [];
    this.chosen = null; // a pass that the user points at
    this.summary = make("p", { className: "note" }, NONE);
    this.detail = make("p", { className: "detail", "aria-live": "polite" }, HINT);
    this.rows = ["Time", "Tokens"].map((name) => {
      const most = make("span", {});
      const box = { viewBox: `0 0 ${SHOWN} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" };
      return { most, picture: draw("svg", box), axis: make("div", { className: "axis" }, most, make("span", {}, name), make("span", {}, "0")) };
    });
    const label = "The last passes: the arrow keys choose one";
    const plot = make("div", { className: "plot", tabIndex: 0, role: "group", "aria-label": label });
    plot.append(...this.rows.flatMap(({ axis, picture }) => [axis, picture]));
    const legend = PARTS.map(([kind, name]) => make("li", {}, make("span", { className: `swatch ${kind}` }), name));
    place.append(this.summary, plot, make("ul", { className: "legend" }, ...legend), this.detail);
    plot.addEventListener("pointermove", (event) => this.point(event));
    plot.addEventListener("pointerleave", () => this.choose(null));
    plot.addEventListener("blur", () => this.choose(null));
    plot.addEventListener("keydown", (event) => this.key(event));
  }

  // Begin anew.
  clear() {
    this.passes = [];
    this.choose(null);
    this.summary.textContent = NONE;
    for (const { picture, most } of this.rows) {
      picture.replaceChildren();
      most.textContent = "";
    }
  }

  take(passes) {
    this.passes = [...this.passes, ...passes].slice(-SHOWN);
  }

  point(event) {
    const { left, width } = this.rows[0].picture.getBoundingClientRect();
    const at = Math.floor(((event.clientX - left) / width) * SHOWN) - (SHOWN - this.passes.length);
    this.choose(event.clientX < left ? null : (this.passes[at] ?? null));
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") this.choose(null);
    if (step === undefined || !this.passes.length) return;
    event.preventDefault();
    const at = this.chosen === null ? this.passes.length - (step < 0 ? 0 : 1) : this.passes.indexOf(this.chosen);
    this.choose(this.passes[Math.min(this.passes.length - 1, Math.max(0, at + step))]);
  }

  choose(pass) {
    if (pass === this.chosen) return;
    this.chosen = pass;
    this.detail.textContent = pass === null ? HINT : described(pass);
    this.draw();
  }

  draw() {
    const { passes } = this;
    if (!passes.length) return;
    const times = sorted(passes.map((each) => each.took_ms));
    const mean = (value) => passes.reduce((sum, each) => sum + value(each), 0) / passes.length;
    const size = `${mean((each) => each.tokens).toFixed(1)} tokens of ${mean((each) => each.sessions).toFixed(1)} sessions on average; the newest on the right`;
    const last = `The last ${passes.length === 1 ? "pass" : `${passes.length} passes`}`;
    this.summary.textContent = `${last}: ${time(quantile(times, 0.5))} in the median, 9 of 10 within ${time(quantile(times, 0.9))}; ${size}.`;
    // A few far longer passes, and prompts, go beyond the picture: they must not flatten the others.
    const longest = Math.max(1, Math.min(times.at(-1), 2.5 * quantile(times, 0.8)));
    const widest = Math.max(4, ...passes.map((each) => each.tokens - each.prefilled));
    const kind = (each) => (2 * each.prefilled > each.tokens ? "time reading" : "time");
    this.fill(0, longest, time(longest), (each) => [[kind(each), each.took_ms]]);
    this.fill(1, widest, whole(widest), (each) => PARTS.map(([kind, , count]) => [kind, count(each)]));
  }

  // Draw a row. `most`: the value at its top; `parts`: of a pass, from below, as class and value.
  fill(row, most, label, parts) {
    const { picture, most: text } = this.rows[row];
    const scale = HEIGHT / most;
    const bars = this.passes.flatMap((each, at) => {
      const x = SHOWN - this.passes.length + at;
      let y = HEIGHT;
      const drawn = parts(each).filter(([, value]) => value > 0).map(([kind, value]) => {
        const height = Math.max(0, Math.min(value * scale, y));
        y -= height;
        return draw("rect", { class: kind, x: x + 0.1, y: y.toFixed(2), width: 0.8, height: height.toFixed(2) });
      });
      const total = parts(each).reduce((sum, [, value]) => sum + value, 0);
      if (total > most * 1.001) drawn.push(draw("rect", { class: "beyond", x: x + 0.1, y: 0, width: 0.8, height: 3 }));
      if (each === this.chosen) drawn.push(draw("rect", { class: "chosen", x, y: 0, width: 1, height: HEIGHT }));
      return drawn;
    });
    picture.replaceChildren(...bars);
    picture.setAttribute("aria-label", row ? `Tokens of the last passes, up to ${label}` : this.summary.textContent);
    text.textContent = label;
  }
}
