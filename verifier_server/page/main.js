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
let title = "specpair verifier";
let listening = new AbortController();
let due = 0; // the frame in which all is drawn again

// What the status line says. Numbers stand beside it, so that a screen reader reads changes of the condition only.
function say(kind, text, detail = "") {
  byId("state").className = kind;
  if (byId("condition").textContent !== text) byId("condition").replaceChildren(...visible(text));
  byId("detail").replaceChildren(...visible(detail));
  document.title = kind === "ready" ? title : `${text} – ${title}`;
}

function take(name, data) {
  const now = performance.now();
  if (document.body.classList.contains("stale")) {
    document.body.classList.remove("stale");
    byId("access").open = false;
  }
  if (name === "state") {
    if (state !== null && state.began_at !== data.began_at) restart(now);
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

// Another process answers: it counts anew, and may serve another model.
function restart(now) {
  history.begin(now);
  strip.clear();
  sessions.clear();
  model.clear();
  byId("name").replaceChildren();
  title = "specpair verifier";
  identity = null;
}

async function showModel(now) {
  identity = now;
  try {
    const found = await (await ask("model")).json();
    model.show(found);
    model.draw(strip.passes);
    byId("name").replaceChildren(...visible(found.model));
    title = `${found.model} – specpair verifier`;
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
  const keyless = failure?.code === "unauthorized" && !key();
  say("away", keyless ? "This verifier wants its API key." : (failure?.message ?? "The verifier has ended the connection."));
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
