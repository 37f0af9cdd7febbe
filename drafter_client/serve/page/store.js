// Conversations in this browser. Each one has a key of its own in localStorage, so that two tabs seldom meet.

import * as sources from "./sources.js";

const PREFIX = "specpair.chat.";
const DEFAULTS = "specpair.settings";

// All conversations, the latest first: `{id, changed, settings, calling, messages: [{role, content,
// thoughts?, calls?, call?, problem?}]}`. `calls` are of an answer, `call` is the id of the one that a result is for.
export function all() {
  const found = [];
  for (let at = 0; at < localStorage.length; at += 1) {
    const name = localStorage.key(at);
    if (name.startsWith(PREFIX)) found.push(JSON.parse(localStorage.getItem(name)));
  }
  return found.sort((one, other) => other.changed - one.changed);
}

// A conversation without messages, with the settings that were used last. It is kept once it is saved.
export function begun() {
  const settings = JSON.parse(localStorage.getItem(DEFAULTS) ?? "{}");
  return { id: crypto.getRandomValues(new Uint32Array(4)).join("-"), changed: Date.now(), settings, calling: {}, messages: [] };
}

// Keep a conversation. Returns false if the browser has no room for it.
export function save(chat) {
  chat.changed = Date.now();
  const { system: _, ...others } = chat.settings;
  const value = JSON.stringify(chat, (name, each) => (name === "tokens" ? undefined : each));
  do {
    try {
      localStorage.setItem(PREFIX + chat.id, value);
      localStorage.setItem(DEFAULTS, JSON.stringify(others));
      sources.keep(chat);
      return true;
    } catch {
      // the browser's limit, of some megabytes: messages are worth more than the sources of tokens
    }
  } while (sources.dropOldest());
  return false;
}

export function forget(chat) {
  localStorage.removeItem(PREFIX + chat.id);
  sources.forget(chat);
}

// Its name: how the first question begins.
export function title(chat) {
  return chat.messages.find((each) => each.role === "user")?.content.trim().slice(0, 60) || "New conversation";
}
