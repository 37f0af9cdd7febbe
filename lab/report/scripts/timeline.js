// The timeline of a run: a window of it in lanes, which can be moved and zoomed, above all of it.

import { make, visible } from "./dom.js";
import { HEIGHT, LANES, bars, names } from "./lanes.js";
import { draw } from "./svg.js";

const SHOWN = 24; // rounds that the window shows at first
const LEAST = 1; // milliseconds that it shows
const LARGER = 2; // what a step of the zoom multiplies the window by
const TOP = 18; // of the rows for modes and for times
const OVERVIEW = 28; // height of all of the run
const FOOT = TOP + LANES.length * HEIGHT;

export class Timeline {
  // `run`: `{ all, rounds, modes, outages, end }`. `described`: what is known of a round, in words.
  constructor(root, run, described) {
    Object.assign(this, run);
    this.described = described;
    this.at = -1; // index of the round that is chosen
    this.window = make("div", { tabIndex: 0, className: "window" });
    this.window.setAttribute("role", "group");
    this.window.setAttribute("aria-label", "Timeline: arrow keys go from round to round, plus and minus zoom");
    this.overview = make("div", { className: "overview" });
    this.detail = make("p", { className: "detail", role: "status" });
    root.replaceChildren(this.controls(), this.window, this.overview, this.detail);
    const last = this.rounds[Math.min(SHOWN, this.rounds.length) - 1];
    this.from = 0;
    this.to = this.rounds.length > 2 * SHOWN ? (last.arrived_ms ?? last.sent_ms) : this.end;
    this.window.addEventListener("keydown", (event) => this.key(event));
    this.window.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.window.addEventListener("pointerdown", (event) => this.drag(event));
    this.overview.addEventListener("pointerdown", (event) => this.moveTo(this.timeAt(this.overview, event, 0, this.end)));
    new ResizeObserver(() => this.due()).observe(this.window);
    this.tell("Choose a round, and what is known of it stands here.");
  }

  controls() {
    const button = (name, act) => {
      const made = make("button", { type: "button" }, name);
      made.addEventListener("click", act);
      return made;
    };
    return make(
      "div",
      { className: "controls" },
      button("Previous round", () => this.step(-1)),
      button("Next round", () => this.step(1)),
      button("Zoom in", () => this.zoom(1 / LARGER)),
      button("Zoom out", () => this.zoom(LARGER)),
      button("Earlier", () => this.move(-0.5)),
      button("Later", () => this.move(0.5)),
      button("Whole run", () => this.show(0, this.end)),
    );
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const acts = {
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      Home: () => this.choose(0),
      End: () => this.choose(this.rounds.length - 1),
      PageUp: () => this.move(-0.9),
      PageDown: () => this.move(0.9),
      "+": () => this.zoom(1 / LARGER),
      "=": () => this.zoom(1 / LARGER),
      "-": () => this.zoom(LARGER),
      0: () => this.show(0, this.end),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  // With Ctrl, as a pinch on a touchpad has it, the wheel zooms; sideways it moves; else it scrolls the page.
  wheel(event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? LARGER ** 0.25 : LARGER ** -0.25, this.timeAt(this.window, event, this.from, this.to));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.move(event.deltaX / this.window.clientWidth);
    }
  }

  // A drag moves the window, a press without one chooses the round there.
  drag(event) {
    const { clientX: begun } = event;
    const { from, to } = this;
    let moved = false;
    const move = ({ clientX }) => {
      moved ||= Math.abs(clientX - begun) > 3;
      const by = ((begun - clientX) / this.window.clientWidth) * (to - from);
      if (moved) this.show(from + by, to + by);
    };
    const end = (last) => {
      this.window.removeEventListener("pointermove", move);
      this.window.removeEventListener("pointerup", end);
      this.window.removeEventListener("pointercancel", end);
      if (!moved && last.type === "pointerup") this.choose(this.nearest(this.timeAt(this.window, last, this.from, this.to)));
    };
    this.window.setPointerCapture(event.pointerId);
    this.window.addEventListener("pointermove", move);
    this.window.addEventListener("pointerup", end);
    this.window.addEventListener("pointercancel", end);
  }

  timeAt(element, { clientX }, from, to) {
    const { left, width } = element.getBoundingClientRect();
    return from + ((clientX - left) / width) * (to - from);
  }

  // The index of the round that was under way at a time, the last one sent; else of the one that is nearest to it.
  nearest(time) {
    let found = -1;
    let least = Infinity;
    this.rounds.forEach(({ sent_ms: sent, arrived_ms: arrived }, at) => {
      const away = Math.max(sent - time, time - (arrived ?? sent), 0);
      if (away <= least) [found, least] = [at, away];
    });
    return found;
  }

  step(by) {
    this.choose(this.at < 0 ? this.nearest(this.from) : Math.min(Math.max(this.at + by, 0), this.rounds.length - 1));
  }

  choose(at) {
    const round = this.rounds[at];
    if (!round) return;
    this.at = at;
    const [begin, end] = this.extent(round);
    const width = Math.max(this.to - this.from, end - begin);
    if (begin < this.from) this.show(begin - width / 10, begin + (9 * width) / 10);
    else if (end > this.to) this.show(end - (9 * width) / 10, end + width / 10);
    else this.due();
    this.tell(this.described(round));
  }

  extent({ sent_ms: sent, arrived_ms: arrived }) {
    return [sent, arrived ?? sent];
  }

  tell(text) {
    this.detail.replaceChildren(...visible(text));
  }

  zoom(by, around = this.centre()) {
    const left = (around - this.from) * by;
    this.show(around - left, around - left + (this.to - this.from) * by);
  }

  // The middle of the round that is chosen, if it is in view, else that of the window.
  centre() {
    const round = this.rounds[this.at];
    const [begin, end] = round ? this.extent(round) : [0, 0];
    const middle = (begin + end) / 2;
    return round && middle >= this.from && middle <= this.to ? middle : (this.from + this.to) / 2;
  }

  move(by) {
    const width = this.to - this.from;
    this.show(this.from + by * width, this.to + by * width);
  }

  moveTo(time) {
    const half = (this.to - this.from) / 2;
    this.show(time - half, time + half);
  }

  show(from, to) {
    const width = Math.min(Math.max(to - from, LEAST), this.end);
    this.from = Math.min(Math.max(from, 0), this.end - width);
    this.to = this.from + width;
    this.due();
  }

  // Draw with the next frame, however often that is asked for.
  due() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    const width = Math.max(200, this.window.clientWidth);
    const { from, to } = this;
    const x = (time) => ((time - from) / (to - from)) * width;
    const lanes = draw("g", { transform: `translate(0 ${TOP})` }, ...bars(this.all, from, to, width), ...names());
    const parts = [...this.bands(x, width), lanes, ...this.ticks(x, width)];
    const round = this.rounds[this.at];
    if (round) {
      const [begin, end] = this.extent(round).map(x);
      parts.push(draw("rect", { class: "chosen", x: begin, y: TOP, width: Math.max(2, end - begin), height: FOOT - TOP }));
    }
    const seen = this.rounds.filter((each) => each.sent_ms <= to && this.extent(each)[1] >= from).length;
    const label = `${from.toFixed(0)} to ${to.toFixed(0)} ms of ${this.end.toFixed(0)} ms, ${seen} of ${this.rounds.length} rounds`;
    this.window.replaceChildren(picture(width, FOOT + TOP, label, ...parts));
    this.drawOverview(width);
  }

  // The modes above the lanes, and the times without the verifier across them.
  bands(x, width) {
    const found = this.modes.flatMap(({ mode, begin, end }, at) => {
      const [left, right] = [Math.max(0, x(begin)), Math.min(width, x(end))];
      if (right <= left) return [];
      const band = draw("rect", { class: `mode ${at % 2 ? "other" : ""}`, x: left, y: 0, width: right - left, height: TOP - 2 });
      const name = draw("text", { class: "lane", x: left + 4, y: TOP - 6 }, `mode ${mode}`);
      return right - left > 60 ? [band, name] : [band];
    });
    const gone = this.outages.map(({ begin, end }) =>
      draw("rect", { class: "outage", x: x(begin), y: TOP, width: Math.max(1, x(end) - x(begin)), height: FOOT - TOP }),
    );
    return [...found, ...gone];
  }

  ticks(x, width) {
    const step = roundStep(((this.to - this.from) / width) * 110);
    const found = [];
    for (let at = Math.ceil(this.from / step); at * step <= this.to; at += 1) {
      const left = x(at * step);
      found.push(draw("line", { class: "axis", x1: left, y1: TOP, x2: left, y2: FOOT }));
      if (left < width - 60) found.push(draw("text", { class: "lane", x: left + 2, y: FOOT + 12 }, said(at * step, step)));
    }
    return found;
  }

  drawOverview(width) {
    const scale = OVERVIEW / (LANES.length * HEIGHT);
    this.whole = this.width === width ? this.whole : bars(this.all, 0, this.end, width);
    this.width = width;
    const [left, right] = [(this.from / this.end) * width, (this.to / this.end) * width];
    const all = draw("g", { transform: `scale(1 ${scale})` }, ...this.whole);
    const shown = draw("rect", { class: "chosen", x: left, y: 0, width: Math.max(2, right - left), height: OVERVIEW });
    this.overview.replaceChildren(picture(width, OVERVIEW, "all of the run, and where the window is", all, shown));
  }
}

function picture(width, height, label, ...children) {
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...children);
}

// The least of 1, 2, 5, 10, 20, ... that is not below.
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least);
}

function said(time, step) {
  return step >= 1000 ? `${time / 1000} s` : `${+time.toFixed(3)} ms`;
}
