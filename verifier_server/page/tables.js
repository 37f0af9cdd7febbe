// Tables whose rows are changed in place, so that what is selected or read aloud stays.

import { make, visible } from "./dom.js";
import { counted, lasted, percent, rate, whole } from "./numbers.js";

const GROWING = 2000; // milliseconds for which a text counts as being written
const SPEED = 3000; // milliseconds that a speed is of
const ENDED = 5; // texts that have ended which are shown

// A table. `columns`: `[heading, class]`; the first cell of each row is its heading.
class Table {
  constructor(place, caption, columns) {
    this.columns = columns;
    this.rows = new Map(); // by name
    this.body = make("tbody");
    this.empty = make("td", { colSpan: columns.length, className: "note" });
    const headings = columns.map(([name, kind]) => make("th", { scope: "col", className: kind }, name));
    const table = make("table", {}, make("caption", {}, caption), make("thead", {}, make("tr", {}, ...headings)), this.body);
    place.append(make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption }, table));
  }

  // Show `[name, class, cells]` for each row; a cell is a text, or `[text, share]` with a bar. `none`: what to say of no rows.
  show(rows, none) {
    const names = new Set(rows.map(([name]) => name));
    for (const [name, row] of this.rows) {
      if (!names.has(name)) {
        row.remove();
        this.rows.delete(name);
      }
    }
    let place = null;
    for (const [name, kind, cells] of rows) {
      const row = this.rows.get(name) ?? this.add(name);
      if (row.className !== kind) row.className = kind;
      cells.forEach((cell, at) => fill(row.children[at], cell));
      const next = place === null ? this.body.firstElementChild : place.nextElementSibling;
      if (next !== row) this.body.insertBefore(row, next);
      place = row;
    }
    if (rows.length) this.empty.parentElement?.remove();
    else if (!this.empty.isConnected) this.body.append(make("tr", {}, this.empty));
    this.empty.textContent = none;
  }

  add(name) {
    const cells = this.columns.map(([, kind], at) => make(at ? "td" : "th", { className: kind, ...(at ? {} : { scope: "row" }) }));
    const row = make("tr", {}, ...cells);
    this.rows.set(name, row);
    return row;
  }
}

function fill(place, cell) {
  const [text, share] = Array.isArray(cell) ? cell : [cell, null];
  if (place.dataset.text !== text) {
    const bar = place.querySelector(".bar");
    place.replaceChildren(...visible(text), ...(bar ? [bar] : []));
    place.dataset.text = text;
  }
  if (share === null) return;
  if (!place.querySelector(".bar")) place.append(make("div", { className: "bar", "aria-hidden": "true" }, make("div", {})));
  place.querySelector(".bar").firstElementChild.style.width = `${(100 * Math.min(1, share)).toFixed(1)}%`;
}

export class SessionTable {
  constructor(place) {
    this.note = make("p", { className: "note" });
    this.clear();
    this.table = new Table(place, "Texts under way, and the last ones that ended", [
      ["No.", "number"],
      ["Key", "wide key"],
      ["Session id", "wide key"],
      ["Drafts", "wide"],
      ["Prompt + generated", ""],
      ["Accepted", "number"],
      ["Tokens/s", "number"],
      ["KV slot", "wide"],
      ["Now", ""],
    ]);
    place.append(this.note);
  }

  // Begin anew.
  clear() {
    this.grown = new Map(); // by number: when and how far, of the last seconds
    this.last = { sessions: [], more: 0 };
    this.ended = []; // the last texts that ended, the newest first
  }

  // Texts have ended: they are shown on, also when the verifier has forgotten them.
  end(told) {
    this.ended = [...[...told.sessions].reverse(), ...this.ended].slice(0, ENDED);
  }

  take(now, told) {
    this.last = told;
    const numbers = new Set(told.sessions.map((each) => each.number));
    for (const number of this.grown.keys()) if (!numbers.has(number)) this.grown.delete(number);
    for (const { number, generated } of told.sessions) {
      const points = this.grown.get(number) ?? [];
      if (points.at(-1)?.[1] !== generated) points.push([now, generated]);
      this.grown.set(number, points);
    }
  }

  draw(now) {
    const { sessions, more } = this.last;
    const open = sessions.filter((each) => each.finish_reason === null);
    const shown = [...open, ...this.ended];
    this.table.show(shown.map((each) => this.row(now, each)), "No text is under way.");
    this.table.body.parentElement.classList.toggle("keyless", shown.every((each) => each.key === null));
    const held = more + sessions.length - open.length;
    this.note.textContent = held ? `And ${counted(held, "further session")}.` : "";
  }

  row(now, each) {
    const done = each.finish_reason !== null;
    const points = this.grown.get(each.number) ?? [];
    while (points.length > 1 && points[1][0] <= now - SPEED) points.shift();
    const [since, from] = points.at(0) ?? [now, each.generated];
    const writing = points.length > 1 && now - points.at(-1)[0] < GROWING;
    const text = `${whole(each.prompt_tokens)} + ${whole(each.generated)} of ${whole(each.most_tokens)}`;
    let speed = "–";
    if (done && each.took_ms) speed = rate((1000 * each.generated) / each.took_ms);
    else if (writing && now > since) speed = rate((1000 * (each.generated - from)) / Math.max(500, now - since));
    const cells = [
      String(each.number),
      each.key ?? "–",
      each.session_id?.slice(0, 12) ?? "–",
      { remote: "client", fused: "server", target: "none" }[each.mode] ?? each.mode,
      [text, each.generated / Math.max(1, each.most_tokens)],
      percent(each.accepted, each.drafted),
      speed,
      each.resident ? "yes" : "no",
      doing(each, writing, points.length ? now - points.at(-1)[0] : 0),
    ];
    return [each.number, done ? "ended" : "", cells];
  }
}

function doing(each, writing, silent) {
  if (each.finish_reason !== null) return `ended: ${each.finish_reason}`;
  if (each.prompt_read < each.prompt_tokens && each.in_use) return `reading, ${percent(each.prompt_read, each.prompt_tokens)}`;
  if (writing) return "writing";
  return each.in_use ? "waiting" : `idle ${lasted(silent / 1000)}`;
}

export class UsageTable {
  constructor(place) {
    this.table = new Table(place, "Since the start, by API key", [
      ["Key", ""],
      ["Requests", "number wide"],
      ["Prompt tokens", "number"],
      ["Generated", "number"],
      ["Draft tokens", "number wide"],
      ["Accepted", "number"],
    ]);
  }

  show({ keys }) {
    const rows = keys.map((each) => [
      each.key ?? "",
      "",
      [
        each.key ?? "without a key",
        whole(each.requests),
        whole(each.prompt_tokens),
        whole(each.generated_tokens),
        whole(each.draft_tokens),
        percent(each.accepted_tokens, each.draft_tokens),
      ],
    ]);
    this.table.show(rows, "Nothing yet.");
  }
}
