// Conversations as files: JSON in OpenAI's form, which `drafter chat` loads, and Markdown.

import { make } from "./dom.js";
import { title } from "./store.js";

// The messages in OpenAI's form, with the system prompt.
export function messages(chat) {
  const system = chat.settings.system ? [{ role: "system", content: chat.settings.system }] : [];
  const said = chat.messages.map(({ role, content, thoughts }) =>
    thoughts ? { role, content, reasoning_content: thoughts } : { role, content },
  );
  return [...system, ...said];
}

export function saveJson(chat) {
  download(`${JSON.stringify({ messages: messages(chat) }, null, 2)}\n`, "application/json", "chat.json");
}

export function saveMarkdown(chat) {
  const parts = messages(chat).map(({ role, content }) => `## ${role}\n\n${content}\n`);
  download(`# ${title(chat).replaceAll("\n", " ")}\n\n${parts.join("\n")}`, "text/markdown", "chat.md");
}

function download(text, type, name) {
  const href = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000); // the browser reads it after the click
}
