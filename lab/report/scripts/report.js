// The parts of a report that are drawn: for each run the timeline, the charts, and the text by the sources of its tokens.

import { byId, make } from "./dom.js";
import { drawSoon } from "./frames.js";
import { chart } from "./lanes.js";
import { endOf, overTime, roundsOf, spansOf } from "./recorded.js";
import { Timeline } from "./timeline.js";
import { TokensView, described, legend } from "./tokens.js";

const MARK = "▪ "; // of a token whose text and id are not in the file

const percent = (value) => `${(100 * value).toFixed(1)} %`;
const ms = (value) => (value === null ? "unknown" : `${value.toFixed(1)} ms`);
const counted = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;
const rows = (table) => (table[Object.keys(table)[0]] ?? []).map((_, at) => row(table, at));
const row = (table, at) => Object.fromEntries(Object.keys(table).map((name) => [name, table[name][at]]));

// Draw a run into its section.
function fill(section, run) {
  const place = (name) => section.querySelector(`.${name}`);
  const rounds = roundsOf(run);
  const all = spansOf(run, rounds);
  const end = endOf(run, all);
  const spelled = (id) => run.pieces?.[id] ?? `#${id}`;
  const known = { all, rounds, end, modes: rows(run.modes), outages: rows(run.outages) };
  new Timeline(place("timeline"), known, (round) => aboutRound(round, rounds.length, spelled));
  place("over-time").replaceChildren(...charts(overTime(run, rounds, end), end));
  text(place("by-source"), run, spelled);
}

function charts(series, end) {
  const drawn = (title, values, most, unit) => {
    const known = values.filter((value) => value !== null);
    const least = Math.min(...known);
    const told = known.length ? `${least.toFixed(unit.digits)} to ${Math.max(...known).toFixed(unit.digits)} ${unit.name}` : "nothing";
    const shown = chart(values.map((value) => (value === null ? null : value / most)), `${title} over ${end.toFixed(0)} ms: ${told}`);
    const range = make("span", {}, `height: 0 to ${(most * unit.scale).toFixed(unit.digits)} ${unit.name}`);
    return make("figure", {}, make("figcaption", {}, title, range), shown);
  };
  const most = (values) => Math.max(1, ...values.filter((value) => value !== null));
  return [
    drawn("Acceptance rate", series.acceptance, 1, { name: "%", digits: 0, scale: 100 }),
    drawn("Tokens a round", series.length, most(series.length), { name: "tokens", digits: 1, scale: 1 }),
    drawn("Speed", series.speed, most(series.speed), { name: "tokens/s", digits: 1, scale: 1 }),
  ];
}

// What is known of a round, in words.
function aboutRound(round, of, spelled) {
  const parts = [`Round ${round.round} of ${of}, ${round.schedule}: sent at ${ms(round.sent_ms)} behind token ${round.position}`];
  const drafts = round.drafts?.map((id) => JSON.stringify(spelled(id))).join(" ");
  parts.push(`${counted(round.k, "draft token")}${drafts ? ` (${drafts})` : ""}`);
  if (round.confidence_mean !== null) {
    parts.push(`their probability with the drafter ${percent(round.confidence_mean)} on average, ${percent(round.confidence_min)} at least`);
  }
  if (round.arrived_ms === null) return [...parts, "no answer came"].join("; ");
  parts.push(round.ran ? `${round.judged} judged, ${round.accepted} accepted, in a pass of ${counted(1 + round.judged, "position")}` : "answered without a pass");
  parts.push(`drafting ${ms(round.draft_ms)}, round trip ${ms(round.rtt_ms)}: wire ${ms(round.network_ms)}, queue ${ms(round.queue_ms)}, pass ${ms(round.forward_ms)}`);
  return parts.join("; ");
}

function text(place, run, spelled) {
  const { tokens, decisions } = run;
  const logprobs = run.metrics.logprobs?.length === tokens.source.length ? run.metrics.logprobs : null;
  const made = rows(tokens).map((token, at) => ({
    ...token,
    at,
    text: run.text?.length ? run.text[at] : tokens.token ? `${token.token} ` : MARK,
    decision: decisions.verdict ? decision(row(decisions, at), spelled) : undefined,
    ...likeliest(logprobs?.[at], spelled),
  }));
  const about = (token) => {
    const shown = { ...token, text: tokens.token ? spelled(token.token) : MARK.trim() };
    const parts = [`Token ${token.at + 1} of ${made.length}, ${described(shown)}`, ...aboutDraft(token, spelled)];
    return [...parts, `known at ${ms(token.committed_ms)}`].join("; ");
  };
  const detail = make("p", { className: "detail", role: "status" });
  const root = make("div", { className: "tokens" });
  place.replaceChildren(legend(), root, detail);
  const view = new TokensView(root, (nodes) => detail.replaceChildren(...nodes), about);
  drawSoon({ slice: () => view.update(made) });
}

function decision({ p, draft, draft_p, q, verdict }, spelled) {
  return { p, draft_p: draft_p ?? 0, q, verdict, draft: draft_p === null ? null : draft === undefined ? MARK.trim() : spelled(draft) };
}

// The likeliest tokens with the target, and the rank of the one that was committed, where they were asked for.
function likeliest(told, spelled) {
  if (!told) return { top: null };
  const at = told.top.findIndex(([id]) => id === told.token);
  return { top: told.top.map(([id, logprob]) => [spelled(id), Math.exp(logprob)]), rank: at < 0 ? null : at + 1 };
}

// What is known of the draft token at a token's place.
function aboutDraft({ source, round, draft, confidence }, spelled) {
  if (!round) return [];
  const sure = confidence === null ? "" : `, with a probability of ${percent(confidence)} with the drafter`;
  if (source === "accepted") return [`drafted for round ${round}${sure}`];
  return [`in place of ${draft === undefined ? "a draft token" : JSON.stringify(spelled(draft))} of round ${round}${sure}`];
}

// One run is shown at a time, that of the address; each is drawn when it is first shown.
function show(runs, drawn) {
  const named = runs.findIndex((run) => location.hash === `#run-${run.run}`);
  const at = Math.max(0, named);
  runs.forEach((run, number) => {
    byId(`run-${run.run}`).hidden = number !== at;
    const link = document.querySelector(`nav a[href="#run-${run.run}"]`);
    if (number === at) link?.setAttribute("aria-current", "page");
    else link?.removeAttribute("aria-current");
  });
  if (!drawn.has(at)) fill(byId(`run-${runs[at].run}`), runs[at]);
  drawn.add(at);
}

const { runs } = JSON.parse(byId("data").textContent);
const drawn = new Set();
addEventListener("hashchange", () => show(runs, drawn));
show(runs, drawn);
