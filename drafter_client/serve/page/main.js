// The page: which conversation is shown, and what its buttons and keys do.

import { fill, fillAlone } from "./answer.js";
import { Failure, ask } from "./api.js";
import { byId, make } from "./dom.js";
import { isJson } from "./calls.js";
import { read, saveJson, saveMarkdown } from "./export.js";
import { Follower } from "./follow.js";
import { drawDue, drawGrown, drawSoon, drop } from "./frames.js";
import { LivePanel, panelParts } from "./live.js";
import { MessageView } from "./message.js";
import { NetworkPanel } from "./network.js";
import * as settings from "./settings.js";
import { restore } from "./sources.js";
import * as store from "./store.js";
import { useTheme } from "./theme.js";
import * as tools from "./tools.js";

let chat = store.all()[0] ?? store.begun();
let views = [];
const list = new Follower(byId("messages"));
let writing = null; // the AbortController of the answer that is being written

function tell(text, bad = false) {
  const status = byId("status");
  status.textContent = text;
  status.className = bad ? "bad" : "";
}

function keep(which) {
  if (!store.save(which)) tell("This browser has no more room for conversations: export and delete some.", true);
  listConversations();
}

function show(which) {
  chat = which;
  restore(chat);
  drawMessages();
  settings.show(byId("fields"), chat.settings, () => {
    if (chat.messages.length) keep(chat);
    showModel();
  });
  tools.show(byId("calling"), (chat.calling ??= {}), () => {
    if (chat.messages.length) keep(chat);
  });
  listConversations();
}

function drawMessages() {
  views.forEach(drop);
  const last = chat.messages.length - 1;
  views = chat.messages.map(
    (message, at) =>
      new MessageView(message, message.role === "assistant" ? null : (text) => editMessage(at, text), at === last ? giveResults : null),
  );
  showSources();
  list.show(views.map((each) => each.node));
  drawDue();
  offerButtons();
}

function showSources() {
  const shown = localStorage.getItem("specpair.sources") === "shown";
  byId("sources").setAttribute("aria-pressed", String(shown));
  for (const each of views) each.sources = shown;
}

function offerButtons() {
  byId("send").disabled = writing !== null;
  byId("stop").disabled = writing === null;
  byId("retry").disabled = writing !== null || !chat.messages.length;
  byId("json").disabled = byId("markdown").disabled = !chat.messages.length;
  byId("new").disabled = byId("import").disabled = writing !== null;
}

function listConversations() {
  const items = store.all().map((each) => {
    const open = make("button", { type: "button", dir: "auto" }, store.title(each));
    if (each.id === chat.id) open.setAttribute("aria-current", "true");
    open.addEventListener("click", () => {
      if (writing === null) show(each);
      openMenu(false);
    });
    const remove = make("button", { type: "button", "aria-label": `Delete: ${store.title(each)}` }, "×");
    remove.addEventListener("click", () => {
      if (writing !== null || !confirm(`Delete this conversation?\n\n${store.title(each)}`)) return;
      store.forget(each);
      if (each.id === chat.id) show(store.all()[0] ?? store.begun());
      else listConversations();
    });
    return make("li", {}, open, remove);
  });
  byId("conversations").replaceChildren(...items);
}

function openMenu(open) {
  byId("aside").classList.toggle("open", open);
  byId("menu").setAttribute("aria-expanded", String(open));
}

async function answer() {
  const which = chat;
  live.alone.stop();
  keep(which); // the question stays, whatever becomes of the answer
  const message = { role: "assistant", content: "" };
  which.messages.push(message);
  writing = new AbortController();
  drawMessages();
  const view = views.at(-1);
  view.busy = true;
  tell("The target writes…");
  const grown = (silence) => {
    hear(message, silence);
    drawGrown(view);
  };
  const seconds = setInterval(() => message.away && drawSoon(view), 1000); // so that the wait is seen to last
  try {
    await fill(message, which, writing.signal, grown);
    tell(message.calls ? "The target calls tools: write what they return." : "The answer is complete.");
  } catch (error) {
    if (error.name === "AbortError") tell("Stopped. What was written counts as said.");
    else if (error instanceof Failure) failed(message, error);
    else if (error instanceof SyntaxError) refused(error);
    else throw error;
  } finally {
    writing = null;
    clearInterval(seconds);
    delete message.away;
    dropBroken(message);
    view.busy = false;
    drawSoon(view);
    drawDue();
    if (message.calls && document.activeElement === byId("input")) view.byCall.focus();
    if (!isSaid(message) && !message.problem) which.messages.pop();
    keep(which);
    offerButtons();
  }
}

function failed(message, error) {
  message.problem = message.content ? `${error.message} What came until then is kept; Retry asks again.` : error.message;
  tell(error.message, true);
  if (error.code === "invalid_api_key") {
    byId("options").open = true;
    byId("key").focus();
  }
}

// What the stream of an answer says in silence: that the prompt is being read, or that the verifier is away.
function hear(message, silence) {
  const [, seconds, why] = /^the verifier is away for (\d+) s: (.*)$/s.exec(silence) ?? [];
  if (why !== undefined) {
    if (!message.away) tell(`Waiting for the verifier (${why}). The answer goes on when it is back.`, true);
    message.away = { since: message.away?.since ?? Date.now() - 1000 * Number(seconds), why };
  } else if (message.away) {
    message.waited = (message.waited ?? 0) + (Date.now() - message.away.since) / 1000;
    delete message.away;
    tell("The verifier is back: the answer goes on.");
  } else if (silence) tell(`The target reads: ${silence}`);
}

// The tools or the schema cannot be sent as they are.
function refused(error) {
  tell(`Tools and JSON: ${error.message}`, true);
  byId("tools-panel").open = true;
  document.querySelector("#calling [aria-invalid=true]")?.focus();
}

// Calls that broke off are none: a chat template could not show them.
function dropBroken(message) {
  if (message.calls && message.ended !== "tool_calls") {
    message.calls = message.calls.filter((each) => isJson(each.arguments));
    if (!message.calls.length) delete message.calls;
  }
}

// Answers that are only a problem are no part of what was said.
function isSaid(message) {
  return message.role !== "assistant" || Boolean(message.content || message.thoughts || message.calls);
}

function dropProblems() {
  chat.messages = chat.messages.filter(isSaid);
}

// The results of the calls of the last answer.
function giveResults(results) {
  if (writing !== null) return;
  const { calls } = chat.messages.at(-1);
  chat.messages.push(...calls.map(({ id, name }, at) => ({ role: "tool", name, call: id, content: results[at] })));
  answer();
}

function send() {
  const text = byId("input").value;
  if (writing !== null || !text.trim()) return;
  if (chat.messages.at(-1)?.calls) return tell("The target waits for what its tools return: send that first, or press Retry.", true);
  try {
    tools.members(chat.calling);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return refused(error);
  }
  byId("input").value = "";
  dropProblems();
  chat.messages.push({ role: "user", content: text });
  answer();
}

function retry() {
  if (writing !== null) return;
  dropProblems();
  if (chat.messages.at(-1)?.role === "assistant") chat.messages.pop();
  if (chat.messages.length) answer();
}

// What comes after the message is dropped, but for further results of the same answer's calls.
function editMessage(at, text) {
  const isResult = chat.messages[at].role === "tool";
  if (writing !== null || !(text.trim() || isResult)) return;
  let end = at + 1;
  while (isResult && chat.messages[end]?.role === "tool") end += 1;
  chat.messages.length = end;
  chat.messages[at] = { ...chat.messages[at], content: text };
  answer();
}

// Begin a conversation with what a file holds.
async function importFile(file) {
  try {
    const { messages, system, tools: given } = read(await file.text());
    const which = store.begun();
    which.messages = messages;
    if (system) which.settings.system = system;
    if (given.length) which.calling.tools = JSON.stringify(given, null, 2);
    keep(which);
    show(which);
    tell(`${messages.length} messages are here.`);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    tell(`${file.name} is no conversation: ${error.message}`, true);
  }
}

function refuseFiles(event, files) {
  if (!files?.length) return;
  event.preventDefault();
  tell("Images and other files are not taken: the target reads text only. Paste the text.", true);
}

async function showModel() {
  try {
    const { data } = await (await ask("v1/models")).json();
    byId("model").replaceChildren(`${data[0].id}, ${data[0].max_model_len} tokens of context`);
    document.title = `${data[0].id} – specpair`;
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    byId("model").replaceChildren("");
    tell(error.code === "invalid_api_key" ? "This drafter wants its API key." : error.message, true);
    if (error.code === "invalid_api_key") byId("options").open = true;
  }
}

byId("send").addEventListener("click", send);
byId("stop").addEventListener("click", () => writing?.abort());
byId("retry").addEventListener("click", retry);
byId("sources").addEventListener("click", () => {
  if (localStorage.getItem("specpair.sources") === "shown") localStorage.removeItem("specpair.sources");
  else localStorage.setItem("specpair.sources", "shown");
  showSources();
  drawDue();
});
byId("import").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", async () => {
  const [file] = byId("file").files;
  byId("file").value = ""; // so that the same file can be chosen again
  if (file && writing === null) await importFile(file);
});
byId("json").addEventListener("click", () => saveJson(chat));
byId("markdown").addEventListener("click", () => saveMarkdown(chat));
byId("new").addEventListener("click", () => {
  show(store.begun());
  openMenu(false);
  byId("input").focus();
});
byId("menu").addEventListener("click", () => openMenu(byId("menu").getAttribute("aria-expanded") !== "true"));
byId("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  writing?.abort();
  openMenu(false);
});
byId("input").addEventListener("paste", (event) => refuseFiles(event, event.clipboardData?.files));
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  refuseFiles(event, event.dataTransfer?.files);
});
window.addEventListener("storage", (event) => {
  if (event.key?.startsWith("specpair.chat.")) listConversations();
});
byId("live").append(...panelParts());
const live = new LivePanel(byId("live"), (signal) => fillAlone(chat, signal));
new NetworkPanel(byId("network"));
useTheme(byId("theme"));
show(chat);
showModel();
byId("input").focus();
