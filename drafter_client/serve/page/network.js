// The panel of the network: what the service tells of it while the panel is open, as a drawing and as a table.

import { follow } from "./api.js";
import { make, visible } from "./dom.js";
import { amount, busy, counted, drawing, load, milliseconds, short, state } from "./topology.js";

// The columns of the table: its head, and what it says of a node and of the link that leads to it.
const COLUMNS = [
  ["Node", (node) => short(node.name)],
  ["State", (node) => `${node.kind}, ${state(node)}${node.why ? `: ${node.why}` : ""}`],
  ["Model", (node) => node.model ?? ""],
  ["Round trip", (_, link) => (link && link.round_trip_ms !== null ? milliseconds(link.round_trip_ms) : "")],
  ["Measured", (_, link) => (link && link.age_s !== null ? `${link.age_s.toFixed(0)} s ago, from ${short(link.near)}` : "")],
  ["Load", load],
  ["Own texts", (node) => (node.own_texts === null ? "" : String(node.own_texts))],
  ["Tokens/s", (node) => (node.tokens_per_second === null ? "" : amount(node.tokens_per_second))],
  ["In passes", busy],
];

export class NetworkPanel {
  // `panel`: a details element, which gets all parts.
  constructor(panel) {
    this.panel = panel;
    this.shown = null; // the last network
    this.abort = null;
    this.summary = make("p", { className: "sum" });
    this.picture = make("div", { className: "picture" });
    this.rows = make("tbody");
    const head = make("tr", {}, ...COLUMNS.map(([name]) => make("th", { scope: "col" }, name)));
    const table = make("table", { "aria-label": "The network" }, make("thead", {}, head), this.rows);
    const scrolls = make("div", { className: "scrolls", tabIndex: 0, role: "region", "aria-label": "The network as a table" }, table);
    this.words = make("details", {}, make("summary", {}, "As a table"), scrolls);
    this.body = make("div", { className: "network" }, this.summary, this.picture, this.words);
    const enlarge = make("button", { type: "button", className: "enlarge" }, "Enlarge");
    panel.append(enlarge, this.body);
    this.makeDialog(enlarge);
    panel.addEventListener("toggle", (event) => {
      if (event.target === panel) this.listen();
    });
    new ResizeObserver(() => this.draw()).observe(this.picture);
    this.listen();
  }

  // The same parts in a dialog as large as the window.
  makeDialog(enlarge) {
    const close = make("button", { type: "button" }, "Close");
    const title = make("h2", { id: "network-title" }, "Network");
    const dialog = make("dialog", { className: "large", "aria-labelledby": "network-title" }, make("div", { className: "row" }, title, close));
    document.body.append(dialog);
    enlarge.addEventListener("click", () => {
      dialog.append(this.body);
      this.words.open = true;
      dialog.showModal();
    });
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("keydown", (event) => event.stopPropagation()); // Escape closes it, and stops no answer
    dialog.addEventListener("close", () => {
      this.panel.append(this.body);
      this.words.open = false;
      enlarge.focus();
    });
  }

  // Take the events while the panel is open.
  listen() {
    this.abort?.abort();
    if (!this.panel.open) return;
    this.abort = new AbortController();
    const lost = (failure) => {
      this.body.classList.add("stale");
      this.summary.replaceChildren(...visible(failure?.message ?? "The stream of events has ended, and is asked for again."));
    };
    follow("events?of=network", this.abort.signal, (name, data) => this.take(data), lost);
  }

  take(network) {
    this.shown = network;
    this.body.classList.remove("stale");
    this.summary.replaceChildren(...visible(summary(network)));
    this.fill();
    this.draw();
  }

  // The table. What has not changed stays as it is, for those who read it.
  fill() {
    const { nodes, links } = this.shown;
    const names = nodes.map(({ name }) => name);
    if ([...this.rows.children].map((row) => row.dataset.name).join("\n") !== names.join("\n")) {
      this.rows.replaceChildren(
        ...names.map((name) => {
          const row = make("tr", {}, ...COLUMNS.map((_, at) => make(at ? "td" : "th", at ? {} : { scope: "row" })));
          row.dataset.name = name;
          return row;
        }),
      );
    }
    nodes.forEach((node, at) => {
      const link = links.find(({ far }) => far === node.name);
      COLUMNS.forEach(([, says], column) => {
        const cell = this.rows.children[at].children[column];
        const parts = visible(says(node, link));
        if (cell.textContent !== parts.map((each) => each.textContent).join("")) cell.replaceChildren(...parts);
      });
    });
  }

  draw() {
    const width = Math.floor(this.picture.clientWidth);
    if (!this.shown || !width) return;
    this.picture.replaceChildren(drawing(this.shown, width, summary(this.shown)));
  }
}

// The network in a sentence.
function summary({ nodes, links, generated_tokens: tokens }) {
  const verifiers = nodes.filter(({ kind }) => kind === "verifier");
  const ready = verifiers.filter(({ status }) => status === "ready").length;
  const first = links.find(({ round_trip_ms: took }) => took !== null);
  const parts = [
    verifiers.length ? `${ready} of ${counted(verifiers.length, "verifier")} ready` : "verifiers not shown",
    first ? `${milliseconds(first.round_trip_ms)} to ${short(first.far)}` : "no round trip measured yet",
    `${tokens.toLocaleString("en")} tokens generated here`,
  ];
  return `${parts.join("; ")}.`;
}
