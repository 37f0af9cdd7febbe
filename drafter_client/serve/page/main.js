// The page: which conversation is shown, and what its buttons and keys do.

import { fill } from "./answer.js";
import { Failure, ask } from "./api.js";
import { byId, make } from "./dom.js";
import { saveJson, saveMarkdown } from "./export.js";
import { LivePanel, panelParts } from "./live.js";
import { MessageView } from "./message.js";
import * as settings from "./settings.js";
import * as store from "./store.js";
import { useTheme } from "./theme.js";

let chat = store.all()[0] ?? store.begun();
let views = [];
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
  drawMessages();
  settings.show(byId("fields"), chat.settings, () => {
    if (chat.messages.length) keep(chat);
    showModel();
  });
  listConversations();
}

function drawMessages() {
  views = chat.messages.map(
    (message, at) => new MessageView(message, message.role === "user" ? (text) => editMessage(at, text) : null, follow),
  );
  showSources();
  byId("messages").replaceChildren(...views.map((each) => each.node));
  byId("messages").scrollTop = byId("messages").scrollHeight;
  offerButtons();
}

// Draw, and stay at the end of the messages if that is where the reader is.
function follow(draw) {
  const list = byId("messages");
  const low = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
  draw();
  if (low) list.scrollTop = list.scrollHeight;
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
  byId("new").disabled = writing !== null;
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
  const message = { role: "assistant", content: "" };
  which.messages.push(message);
  writing = new AbortController();
  drawMessages();
  const view = views.at(-1);
  view.busy = true;
  tell("The target writes…");
  const grown = (silence) => {
    if (silence) tell(`The target reads: ${silence}`);
    view.grow();
  };
  try {
    await fill(message, which, writing.signal, grown);
    tell("The answer is complete.");
  } catch (error) {
    if (error.name === "AbortError") tell("Stopped. What was written counts as said.");
    else if (error instanceof Failure) failed(message, error);
    else throw error;
  } finally {
    writing = null;
    follow(() => view.draw());
    view.busy = false;
    if (!message.content && !message.thoughts && !message.problem) which.messages.pop();
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

// Answers that are only a problem are no part of what was said.
function dropProblems() {
  chat.messages = chat.messages.filter((each) => each.content || each.thoughts);
}

function send() {
  const text = byId("input").value;
  if (writing !== null || !text.trim()) return;
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

function editMessage(at, text) {
  if (writing !== null || !text.trim()) return;
  chat.messages.length = at;
  chat.messages.push({ role: "user", content: text });
  answer();
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
new LivePanel(byId("live"), (state) => {
  if (writing !== null && state?.status === "verifier_away") tell("The verifier is away: the answer goes on when it is back.", true);
});
useTheme(byId("theme"));
show(chat);
showModel();
byId("input").focus();
