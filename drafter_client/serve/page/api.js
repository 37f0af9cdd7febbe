// Requests to the service that serves this page, with the key that the user has given.

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
    throw new Failure("unreachable", "The drafter cannot be reached. Is drafter serve still running?");
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
    throw new Failure("broken_off", "The connection to the drafter broke off.");
  }
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

// The chunks of a streamed text as objects; a comment, which comes in silence, as `{comment}`.
export async function* stream(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const response = await ask(path, { method: "POST", headers, body: JSON.stringify({ ...body, stream: true }), signal });
  for await (const each of events(response)) {
    if (each.comment !== undefined) yield { comment: each.comment };
    if (each.data === undefined) continue;
    if (each.data === "[DONE]") return;
    const chunk = JSON.parse(each.data);
    if (chunk.error) throw new Failure(chunk.error.code, chunk.error.message);
    yield chunk;
  }
  throw new Failure("broken_off", "The connection to the drafter broke off.");
}
