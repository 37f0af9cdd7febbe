// Drawings of what the pair did, as SVG: the acceptance rate over time, and the lanes of the last rounds.

import { WIDTH, draw, picture } from "./svg.js";

const SHOWN = 8; // rounds in the lanes
const LANES = ["drafting", "wire", "queue", "pass"];
const HEIGHT = 16; // of a lane

// Shares between 0 and 1, one for each point; null where there is none.
export function chart(shares) {
  const height = 60;
  const known = shares.map((share, at) => [at, share]).filter(([, share]) => share !== null);
  const step = WIDTH / Math.max(1, shares.length - 1);
  const points = known.map(([at, share]) => `${(at * step).toFixed(1)},${(height - 2 - share * (height - 4)).toFixed(1)}`);
  const label = known.length ? `the last: ${(100 * known.at(-1)[1]).toFixed(0)} percent` : "nothing yet";
  return picture(height, label, draw("polyline", { points: points.join(" "), class: "rate" }));
}

// The spans of a round by lane, in milliseconds: `[lane, begin, end]`. The way there and back are taken as equally long.
export function spans(round) {
  const { sent_ms: sent, arrived_ms: arrived, drafting_ms: drafting, queue_ms: queue, forward_ms: forward } = round;
  const way = Math.max(0, (arrived - sent - queue - forward) / 2);
  return [
    ["drafting", sent - drafting, sent],
    ["wire", sent, sent + way],
    ["queue", sent + way, sent + way + queue],
    ["pass", sent + way + queue, sent + way + queue + forward],
    ["wire", arrived - way, arrived],
  ].filter(([, begin, end]) => end > begin);
}

// The last rounds of the text that was heard of last, as bars in a lane for each of what took time.
export function lanes(rounds) {
  const last = rounds.at(-1);
  const shown = last ? rounds.filter((each) => each.text === last.text).slice(-SHOWN) : [];
  const all = shown.flatMap((each) => spans(each));
  const begin = Math.min(...all.map((each) => each[1]));
  const scale = WIDTH / Math.max(1, Math.max(...all.map((each) => each[2])) - begin);
  const bars = all.map(([lane, from, to]) =>
    draw("rect", {
      class: lane,
      x: ((from - begin) * scale).toFixed(1),
      y: LANES.indexOf(lane) * HEIGHT + 1,
      width: Math.max(1, (to - from) * scale).toFixed(1),
      height: HEIGHT - 3,
    }),
  );
  const names = LANES.map((lane, at) => draw("text", { x: 4, y: (at + 1) * HEIGHT - 4, class: "lane" }, lane));
  const took = last ? last.arrived_ms - last.sent_ms : 0;
  const label = last
    ? `${shown.length} rounds; the last took ${took.toFixed(0)} ms, of which the pass ${last.forward_ms.toFixed(0)} ms`
    : "no rounds yet";
  return picture(LANES.length * HEIGHT, label, ...bars, ...names);
}
