// Drawings of what the pair did, as SVG: the acceptance rate over time, and the lanes of the last rounds.

import { WIDTH, draw, picture } from "./svg.js";

const SHOWN = 8; // rounds in the lanes
export const GUTTER = 56; // beside the bars, for the names of the lanes
export const LANES = ["drafting", "wire", "queue", "pass"];
export const HEIGHT = 16; // of a lane
const GAP = 1; // between bars that are wide enough
const COLUMN = 3; // width of a column

// Shares between 0 and 1, one for each point; null where there is none: the line has a gap. `said`: what it shows, in place
// of the last share.
export function chart(shares, said, width = WIDTH) {
  const height = 60;
  const step = width / Math.max(1, shares.length - 1);
  const last = shares.findLast((share) => share !== null);
  const line = shares.map((share, at) => {
    if (share === null) return "";
    const place = `${(at * step).toFixed(1)} ${(height - 2 - share * (height - 4)).toFixed(1)}`;
    if ((shares[at - 1] ?? null) !== null) return `L${place}`;
    return (shares[at + 1] ?? null) === null ? `M${place}h${at ? -4 : 4}` : `M${place}`; // a line has two ends
  });
  const label = said ?? (last === undefined ? "nothing yet" : `the last: ${(100 * last).toFixed(0)} percent`);
  return picture(height, label, [draw("path", { d: line.join(""), class: "rate" })], width);
}

// The spans of a round by lane, in milliseconds: `[lane, begin, end]`. The way there and back are taken as equally long.
// What the verifier says that queue and pass took is cut to the round trip, the queue first.
export function spans(round) {
  const { sent_ms: sent, arrived_ms: arrived, drafting_ms: drafting, queue_ms: queue, forward_ms: forward } = round;
  const way = Math.max(0, (arrived - sent - queue - forward) / 2);
  const ended = arrived - way;
  const begun = Math.max(sent, ended - forward);
  const queued = Math.max(sent, begun - queue);
  return [
    ["drafting", sent - drafting, sent],
    ["wire", sent, queued],
    ["queue", queued, begun],
    ["pass", begun, ended],
    ["wire", ended, arrived],
  ].filter(([, begin, end]) => end > begin);
}

// Bars of spans in their lanes, from one time to another. `all`: in the order of their begin. A lane with more spans than can
// be told apart has columns, each as high as the share of its time in which the lane was active.
export function bars(all, begin, end, width = WIDTH) {
  const scale = width / Math.max(1, end - begin);
  const seen = all.filter(([, from, to]) => to >= begin && from <= end);
  return LANES.flatMap((lane, at) => {
    const placed = seen
      .filter(([name]) => name === lane)
      .map(([, from, to]) => [Math.max(0, (from - begin) * scale), Math.min(width, (to - begin) * scale)]);
    const dense = placed.length > width / COLUMN;
    return (dense ? columns(placed, width) : placed.map(([from, to]) => [from, Math.max(1, to - from), 1])).map(
      ([x, wide, high]) =>
        draw("rect", {
          class: lane,
          x: x.toFixed(1),
          y: (at * HEIGHT + 1 + (1 - high) * (HEIGHT - 3)).toFixed(1),
          width: (wide > 4 * GAP ? wide - GAP : wide).toFixed(1),
          height: (high * (HEIGHT - 3)).toFixed(1),
        }),
    );
  });
}

// The columns of spans, `[x, width, share]`: those in which anything was active.
function columns(placed, width) {
  const shares = new Array(Math.ceil(width / COLUMN)).fill(0);
  let covered = 0; // up to here, in pixels: time in which several were active counts once
  for (const [from, to] of placed) {
    for (let x = Math.max(from, covered); x < to; ) {
      const next = Math.min(to, (Math.floor(x / COLUMN + 1e-9) + 1) * COLUMN);
      shares[Math.min(shares.length - 1, Math.floor(x / COLUMN + 1e-9))] += (next - x) / COLUMN;
      x = next;
    }
    covered = Math.max(covered, to);
  }
  return shares.flatMap((share, at) => (share > 0 ? [[at * COLUMN, COLUMN, Math.min(1, Math.max(0.1, share))]] : []));
}

// The names of the lanes, at their begin.
export function names() {
  return LANES.map((lane, at) => draw("text", { x: 4, y: (at + 1) * HEIGHT - 4, class: "lane" }, lane));
}

// The last rounds of the text that was heard of last, as bars in a lane for each of what took time.
export function lanes(rounds, width = WIDTH) {
  const last = rounds.at(-1);
  const shown = last ? rounds.filter((each) => each.text === last.text).slice(-SHOWN) : [];
  const all = shown.flatMap((each) => spans(each)).sort((one, other) => one[1] - other[1]);
  const begin = Math.min(...all.map((each) => each[1]));
  const end = Math.max(...all.map((each) => each[2]));
  const took = last ? last.arrived_ms - last.sent_ms : 0;
  const label = last
    ? `${shown.length} rounds; the last took ${took.toFixed(0)} ms, of which the pass ${last.forward_ms.toFixed(0)} ms`
    : "no rounds yet";
  const drawn = draw("g", { transform: `translate(${GUTTER} 0)` }, ...bars(all, begin, end, width - GUTTER));
  return picture(LANES.length * HEIGHT, label, [drawn, ...names()], width);
}
