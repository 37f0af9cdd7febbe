// Conversations as files: JSON in OpenAI's form, which `drafter chat` loads and this page, too, and Markdown.

import { pretty } from "./calls.js";
import { make } from "./dom.js";
import { title } from "./store.js";
import { toolsOf } from "./tools.js";

// The messages in OpenAI's form, with the system prompt.
export function messages(chat) {
  const system = chat.settings.system ? [{ role: "system", content: chat.settings.system }] : [];
  return [...system, ...chat.messages.map(message)];
}

function message({ role, content, thoughts, calls, call }) {
  const found = { role, content };
  if (thoughts) found.reasoning_content = thoughts;
  if (call) found.tool_call_id = call;
  if (calls?.length) {
    found.tool_calls = calls.map((each) => ({
      id: each.id,
      type: "function",
      function: { name: each.name, arguments: each.arguments },
    }));
  }
  return found;
}

// The conversation that a file holds, as `{messages, system, tools}`. Raises a SyntaxError in words.
export function read(text) {
  const file = JSON.parse(text);
  const given = Array.isArray(file) ? file : file?.messages;
  if (!Array.isArray(given)) throw new SyntaxError('it has no list "messages"');
  const found = { messages: [], system: "", tools: file.tools ?? [] };
  given.forEach((each, at) => {
    const content = each?.content ?? "";
    if (typeof content !== "string") throw new SyntaxError(`message ${at + 1} is no text: images and other parts are not taken`);
    if (at === 0 && each?.role === "system") found.system = content;
    else found.messages.push(taken(each, content, at));
  });
  const names = new Map(found.messages.flatMap((each) => each.calls ?? []).map((each) => [each.id, each.name]));
  for (const each of found.messages) if (names.has(each.call)) each.name = names.get(each.call);
  return found;
}

function taken(each, content, at) {
  if (!["user", "assistant", "tool"].includes(each?.role)) throw new SyntaxError(`message ${at + 1} has no role that is known here`);
  const found = { role: each.role, content };
  if (each.reasoning_content) found.thoughts = String(each.reasoning_content);
  if (each.role === "tool") found.call = String(each.tool_call_id ?? "");
  if (each.tool_calls?.length) {
    found.calls = each.tool_calls.map(({ id, function: called }) => {
      if (typeof called?.name !== "string") throw new SyntaxError(`message ${at + 1} has a call without a name`);
      const given = called.arguments ?? "";
      return { id: String(id ?? ""), name: called.name, arguments: typeof given === "string" ? given : JSON.stringify(given) };
    });
  }
  return found;
}

export function saveJson(chat) {
  const tools = given(chat);
  const file = { messages: messages(chat), ...(tools.length ? { tools } : {}) };
  download(`${JSON.stringify(file, null, 2)}\n`, "application/json", "chat.json");
}

// The tools, if what stands there defines some.
function given(chat) {
  try {
    return toolsOf(chat.calling?.tools);
  } catch (error) {
    if (error instanceof SyntaxError) return [];
    throw error;
  }
}

export function saveMarkdown(chat) {
  const called = (calls = []) =>
    calls.map(({ function: { name, arguments: given } }) => `Call of ${name}:\n\n\`\`\`json\n${pretty(given)}\n\`\`\`\n`);
  const parts = messages(chat).flatMap(({ role, content, tool_calls }) => [`## ${role}\n\n${content}\n`, ...called(tool_calls)]);
  download(`# ${title(chat).replaceAll("\n", " ")}\n\n${parts.join("\n")}`, "text/markdown", "chat.md");
}

function download(text, type, name) {
  const href = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000); // the browser reads it after the click
}
