// The page of the verifier: takes its events, and shows what they tell.

import { ask, follow, key, setKey } from "./api.js";
import { byId, visible } from "./dom.js";
import { History } from "./history.js";
import { ModelPart } from "./model.js";
import { lasted, percent } from "./numbers.js";
import { Strip } from "./strip.js";
import { SessionTable, UsageTable } from "./tables.js";
import { useTheme } from "./theme.js";
import { Tiles } from "./tiles.js";

const TICK = 500; // milliseconds after which what depends on time is drawn again
const SAID = {
  ready: "ready",
  overloaded: "busy: new texts are refused",
  draining: "stopping: texts under way end first",
  loading: "loading the model",
  failed: "failed",
};

const history = new History(performance.now());
const tiles = new Tiles(byId("now"));
const strip = new Strip(byId("passes"));
const sessions = new SessionTable(byId("sessions"));
const usage = new UsageTable(byId("usage"));
const model = new ModelPart(byId("model"));
let state = null; // the last one
let identity = null; // of the model that is shown
let listening = new AbortController();
let due = 0; // the frame in which all is drawn again

// What the status line says. Numbers stand beside it, so that a screen reader reads changes of the condition only.
function say(kind, text, detail = "") {
  byId("state").className = kind;
  if (byId("condition").textContent !== text) byId("condition").replaceChildren(...visible(text));
  byId("detail").replaceChildren(...visible(detail));
}

function take(name, data) {
  const now = performance.now();
  document.body.classList.remove("stale");
  if (name === "state") {
    state = data;
    const { engine } = data;
    history.level(now, {
      waiting: engine?.waiting ?? 0,
      sessions: data.sessions_in_use,
      cached: engine ? engine.cached_tokens / Math.max(1, engine.slots * engine.context_length) : 0,
    });
    if (data.identity !== null && data.identity !== identity) showModel(data.identity);
  } else if (name === "passes") {
    history.passes(now, data.passes);
    strip.take(data.passes);
    strip.draw();
    model.draw(strip.passes);
  } else if (name === "sessions") sessions.take(now, data);
  else if (name === "ended") sessions.end(data);
  else if (name === "usage") usage.show(data);
  due ||= requestAnimationFrame(draw);
}

function draw() {
  due = 0;
  const now = performance.now();
  history.move(now);
  tiles.draw(state, history);
  sessions.draw(now);
  if (state === null || document.body.classList.contains("stale")) return;
  const loaded = state.progress === null ? "" : percent(state.progress, 1);
  say(state.status, SAID[state.status] ?? state.status, state.reason ?? (loaded || `up ${lasted(Date.now() / 1000 - state.began_at)}`));
}

async function showModel(now) {
  identity = now;
  try {
    const found = await (await ask("model")).json();
    model.show(found);
    model.draw(strip.passes);
    byId("name").replaceChildren(...visible(found.model));
    document.title = `${found.model} – specpair verifier`;
  } catch (error) {
    identity = null; // the next state asks again
    if (error.code === undefined) throw error;
  }
}

function lost(failure) {
  document.body.classList.add("stale");
  history.begin(performance.now());
  if (failure?.code === "unauthorized") {
    listening.abort(); // until there is another key
    byId("access").hidden = false;
    byId("access").open = true;
    byId("key").focus();
  }
  say("away", failure === null ? "The verifier has ended the connection." : failure.message);
}

function listen() {
  listening.abort();
  listening = new AbortController();
  follow("events", listening.signal, take, lost);
}

useTheme(byId("theme"));
byId("key").value = key();
byId("access").hidden = !key();
byId("key").addEventListener("change", () => {
  setKey(byId("key").value.trim());
  listen();
});
setInterval(() => {
  if (!document.hidden && !document.body.classList.contains("stale")) due ||= requestAnimationFrame(draw);
}, TICK);
listen();
