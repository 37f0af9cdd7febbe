// A drawing of the network as SVG: a box for each node, a line for each link, laid out for the width that there is.

import { visible } from "./dom.js";
import { draw } from "./svg.js";

const GLYPHS = { ready: "●", overloaded: "▲", loading: "◐", draining: "◑", unknown: "○", refused: "⊘" }; // else ✕
const LINE = 18; // the height of one, in pixels, as all lengths here
const WIDEST = 250; // box
const NARROWEST = 176; // box of columns that stand side by side
const LINK = 96; // the shortest line between columns, which its round trip is written on
const LONGEST = 220;
const APART = 18; // boxes of one column
const BETWEEN = 30; // boxes below each other, with the round trip between them
const INDENT = 20;
const OLD = 10; // seconds
const LETTER = 6.3; // wide, about

// A text of a service for a drawing, where no element can mark what would be invisible.
function plain(text) {
  return visible(text).map((each) => each.textContent).join("");
}

// A node's name: its address without what all have in common.
export function short(name) {
  return name === "drafter" ? "this drafter" : plain(name.replace(/^http:\/\//, ""));
}

export function milliseconds(value) {
  return `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ms`;
}

export function amount(value) {
  return new Intl.NumberFormat("en", { maximumSignificantDigits: 3 }).format(value);
}

export function counted(count, what) {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

// How many lines of text a box has.
function lines(node) {
  return 4 + (node.kind === "verifier");
}

// The nodes from the first one on, each behind the one that asks it: `{node, height, link, depth, parent, children}`.
function tree({ nodes, links }) {
  const byName = new Map(nodes.map((node) => [node.name, { node, height: lines(node) * LINE + 16, link: null, depth: 0, parent: null, children: [] }]));
  const [root] = byName.values();
  const found = [];
  const reach = (each) => {
    found.push(each);
    for (const link of links.filter(({ near }) => near === each.node.name)) {
      const next = byName.get(link.far);
      if (!next || found.includes(next)) continue;
      Object.assign(next, { link, depth: each.depth + 1, parent: each });
      each.children.push(next);
      reach(next);
    }
  };
  reach(root);
  return found;
}

// Gives each of the tree `x`, `y`, `width`; returns the height of all, and whether columns stand side by side.
function place(found, width) {
  const columns = 1 + Math.max(...found.map((each) => each.depth));
  const wide = columns > 1 && width >= columns * NARROWEST + (columns - 1) * LINK;
  if (!wide) {
    let y = 0;
    for (const each of found) {
      const x = each.depth * INDENT;
      Object.assign(each, { x, y, width: Math.min(2 * WIDEST, width - x) });
      y += each.height + BETWEEN;
    }
    return { height: y - BETWEEN, wide };
  }
  const box = Math.min(WIDEST, (width - (columns - 1) * LINK) / columns);
  const line = Math.min(LONGEST, (width - columns * box) / (columns - 1));
  const left = (width - columns * box - (columns - 1) * line) / 2;
  let low = 0;
  for (const each of [...found].reverse()) {
    // A node stands in the middle of those behind it, which came before it here. The others stand from below to above.
    const behind = each.children.map(middle);
    if (!behind.length) low -= each.height + APART;
    const y = behind.length ? (Math.min(...behind) + Math.max(...behind) - each.height) / 2 : low;
    Object.assign(each, { x: left + each.depth * (box + line), y, width: box });
  }
  const top = Math.min(...found.map(({ y }) => y));
  for (const each of found) each.y -= top;
  return { height: Math.max(...found.map(({ y, height }) => y + height)), wide };
}

function middle({ y, height }) {
  return y + height / 2;
}

function text(x, y, className, said, room) {
  const most = Math.max(1, Math.floor(room / LETTER));
  const shown = said.length > most ? `${said.slice(0, most - 1)}…` : said;
  return draw("text", { x: x.toFixed(1), y, class: className }, shown, draw("title", {}, said));
}

// What is wrong, in so many lines of text.
function wrapped(said, room, most) {
  const found = [""];
  for (const word of said.split(" ")) {
    if (found.length < most && (found.at(-1).length + word.length) * LETTER > room) found.push(word);
    else found.push(`${found.pop()} ${word}`.trim());
  }
  return found.map((each, at) => text(12, 58 + at * LINE, "wrong", each, room));
}

// What a node says of its load, in words.
export function load(node) {
  if (node.texts === null) return "";
  const texts = node.slots === null ? counted(node.texts, "text") : `${node.texts} of ${counted(node.slots, "slot")}`;
  return `${texts}, ${node.waiting ?? 0} waiting`;
}

// The share of the time in which a verifier runs passes, in words.
export function busy(node) {
  return node.utilisation === null ? "" : `${(100 * node.utilisation).toFixed(0)} %`;
}

export function state(node) {
  const progress = node.progress === null ? "" : ` ${(100 * node.progress).toFixed(0)} %`;
  return `${node.status.replace("_", " ")}${progress}`;
}

function box({ node, height, x, y, width }) {
  const room = width - 24;
  const own = node.own_texts > 0;
  const bad = ["away", "refused", "failed", "verifier_away", "model_mismatch"].includes(node.status);
  const parts = [
    draw("rect", { class: "box", width: width.toFixed(1), height, rx: 8 }),
    text(12, 21, "glyph", GLYPHS[node.status] ?? "✕", room),
    text(29, 21, "title", short(node.name), room - 17),
    text(12, 40, bad ? "wrong" : "said", `${node.kind}, ${state(node)}`, room),
  ];
  if (node.why) parts.push(...wrapped(plain(node.why), room, node.texts === null ? 3 : 1));
  else parts.push(text(12, 58, "said", plain(node.model ?? ""), room));
  if (own) parts.push(draw("text", { x: (width - 12).toFixed(1), y: 40, class: "own", "text-anchor": "end" }, counted(node.own_texts, "own text")));
  if (node.texts !== null) {
    const track = node.slots ? Math.min(64, room / 3) : 0;
    if (track) {
      const share = Math.min(1, node.texts / node.slots);
      parts.push(
        draw("rect", { class: "track", x: 12, y: 68, width: track.toFixed(1), height: 8, rx: 4 }),
        draw("rect", { class: "load", x: 12, y: 68, width: (share * track).toFixed(1), height: 8, rx: 4 }),
      );
    }
    parts.push(text(12 + track + (track && 8), 76, "said", load(node), room - track));
  }
  const speed = node.tokens_per_second === null ? "" : `${amount(node.tokens_per_second)} tokens/s`;
  const passes = busy(node) && `${busy(node)} in passes`;
  if (speed || passes) parts.push(text(12, 94, "said", [speed, passes].filter(Boolean).join(", "), room));
  return draw("g", { class: `node ${node.status}${own ? " used" : ""}`, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` }, ...parts);
}

// What a link says: its round trip, and how old that is if it is not of the last looks.
function said({ link, node }) {
  if (link.round_trip_ms === null) return node.status === "unknown" ? "…" : "no round trip";
  const old = link.age_s >= OLD || node.status === "away";
  return milliseconds(link.round_trip_ms) + (old ? `, ${Math.round(link.age_s)} s ago` : "");
}

function line(each, wide) {
  const { parent, node, x } = each;
  const used = node.own_texts > 0 ? " used" : "";
  const to = middle(each).toFixed(1);
  const label = said(each);
  const shape = { class: `link ${node.status}${used}`, fill: "none" };
  if (!wide) {
    const stem = parent.x + INDENT / 2;
    const path = draw("path", { ...shape, d: `M${stem} ${parent.y + parent.height} V${to} H${x}` });
    return [path, draw("text", { class: "trip", x: x + 6, y: each.y - 9 }, label)];
  }
  const from = parent.x + parent.width;
  const origin = middle(parent);
  const half = (from + x) / 2;
  const path = draw("path", { ...shape, d: `M${from} ${origin} C${half} ${origin} ${half} ${to} ${x} ${to}` });
  const across = label.length * LETTER + 10;
  const at = (origin + middle(each)) / 2;
  return [
    path,
    draw("rect", { class: "under", x: (half - across / 2).toFixed(1), y: (at - 9).toFixed(1), width: across.toFixed(1), height: 18, rx: 9 }),
    draw("text", { class: "trip", x: half.toFixed(1), y: (at + 4).toFixed(1), "text-anchor": "middle" }, label),
  ];
}

// The drawing of a network, `width` pixels wide. `label` says in words what it shows.
export function drawing(network, width, label) {
  const found = tree(network);
  const { height, wide } = place(found, width - 2);
  const behind = found.filter((each) => each.parent);
  const parts = [...behind.flatMap((each) => line(each, wide)), ...found.map(box)];
  const view = { width, height: height + 2, viewBox: `-1 -1 ${width} ${height + 2}`, role: "img", "aria-label": label };
  return draw("svg", view, ...parts);
}
