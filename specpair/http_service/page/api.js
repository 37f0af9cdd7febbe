// Requests to the service that serves this page, with the key that the user has given.

export const SERVICE = document.documentElement.dataset.service; // what it is
const KEY = "specpair.key";

export function key() {
  return localStorage.getItem(KEY) ?? "";
}

export function setKey(value) {
  if (value) localStorage.setItem(KEY, value);
  else localStorage.removeItem(KEY);
}

// What went wrong with a request, in words. `code`: of the service, or "unreachable", or "broken_off".
export class Failure extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

// The response to a request. Raises Failure for one that is no success.
export async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key()) headers.Authorization = `Bearer ${key()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("unreachable", `The ${SERVICE} cannot be reached. Is it still running?`);
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({})); // a proxy may send anything
  const told = said.error ?? {};
  throw new Failure(told.code ?? `http_${response.status}`, told.message ?? `The service replied with ${response.status}.`);
}

// The server-sent events of a response: objects with the fields `event`, `data`; comments have `comment`.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await read(reader);
      if (done) return;
      text += value;
      const parts = text.split("\n\n");
      text = parts.pop();
      for (const part of parts) yield event(part);
    }
  } finally {
    reader.cancel().catch(() => {}); // it may have failed before
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw brokenOff();
  }
}

// The failure of a stream that ended too early.
export function brokenOff() {
  return new Failure("broken_off", `The connection to the ${SERVICE} broke off.`);
}

function event(part) {
  const found = {};
  for (const each of part.split("\n")) {
    const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(each);
    if (name === "") found.comment = value;
    else found[name] = name in found ? `${found[name]}\n${value}` : value;
  }
  return found;
}

const PAUSE = 2000; // milliseconds before the next attempt after a break

// The events of a stream without an end: `take(name, data)` gets each, and `lost(failure)` is called when it breaks off, and
// with null when it ends. It begins again after a pause, until `signal` says so.
export async function follow(path, signal, take, lost) {
  while (!signal.aborted) {
    try {
      for await (const each of events(await ask(path, { signal }))) {
        if (each.event) take(each.event, JSON.parse(each.data));
      }
      lost(null);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof Failure)) throw error;
      lost(error);
    }
    await new Promise((go) => setTimeout(go, PAUSE)); // it is not there yet: a new attempt is all that can be done
  }
}
