// Where the tokens of answers came from, kept in this browser in a short form: two characters a token, up to a budget. The
// oldest conversation's are dropped first; what is not kept is not shown, nothing else.

const PREFIX = "specpair.sources-of.";
const BUDGET = 400_000; // characters, of all conversations
const SOURCES = ["accepted", "recovered"].flatMap((source) =>
  [null, "model", "lookup", "prediction", "grammar"].map((drafted) => [source, drafted]),
);
const UNKNOWN = SOURCES.length + 3;
// Behind the unknown one stand those that came later: what was kept before has the letters of the others.
const KINDS = [
  ...SOURCES,
  ["bonus", null],
  ["target_decoded", null],
  ["forced", null],
  [null, null],
  ["accepted", "corpus"],
  ["recovered", "corpus"],
  ["head", null],
  ["accepted", "head"],
  ["recovered", "head"],
];

// The short form of tokens: for each a letter for its kind, and its length in characters.
export function packed(tokens) {
  const letter = ({ source = null, draft_source: drafted = null }) => {
    const at = KINDS.findIndex((each) => each[0] === source && each[1] === drafted);
    return String.fromCharCode(65 + (at < 0 ? UNKNOWN : at));
  };
  return tokens.map((each) => letter(each) + each.text.length.toString(36)).join("");
}

// The tokens of a text, of which only kind and text are known; null: the short form is of another text.
export function unpacked(short, text) {
  let at = 0;
  const tokens = [];
  for (const [, letter, length] of short.matchAll(/([A-Z])([0-9a-z]+)/g)) {
    const [source, drafted] = KINDS[letter.charCodeAt(0) - 65] ?? [null, null];
    const end = at + Number.parseInt(length, 36);
    tokens.push({ text: text.slice(at, end), source, draft_source: drafted, kept: true });
    at = end;
  }
  return at === text.length ? tokens : null;
}

// Keep those of a conversation.
export function keep(chat) {
  const parts = chat.messages.map(({ tokens, content }) => {
    if (!tokens?.length) return 0;
    const text = tokens.map((each) => each.text).join("");
    return text === content ? [packed(tokens)] : [packed(tokens), text]; // it has thoughts or calls, too
  });
  forget(chat);
  if (!parts.some(Boolean)) return;
  const value = `${Date.now()} ${JSON.stringify(parts)}`;
  if (value.length > BUDGET) return;
  while (value.length + kept().reduce((sum, [, size]) => sum + size, 0) > BUDGET) dropOldest();
  do {
    try {
      localStorage.setItem(PREFIX + chat.id, value);
      return;
    } catch {
      // the browser is full: make room, or leave it
    }
  } while (dropOldest());
}

// Put those that are kept into the messages of a conversation.
export function restore(chat) {
  const value = localStorage.getItem(PREFIX + chat.id);
  if (value === null) return;
  JSON.parse(value.slice(value.indexOf(" "))).forEach((part, at) => {
    const message = chat.messages[at];
    if (!part || !message || message.tokens) return;
    const tokens = unpacked(part[0], part[1] ?? message.content);
    if (tokens) message.tokens = tokens;
  });
}

export function forget(chat) {
  localStorage.removeItem(PREFIX + chat.id);
}

// Drop those of the conversation that was kept first. Returns how many characters that frees, 0 if there are none.
export function dropOldest() {
  const [oldest] = kept();
  if (!oldest) return 0;
  localStorage.removeItem(oldest[0]);
  return oldest[1];
}

// Names and sizes, the oldest first.
function kept() {
  const found = [];
  for (let at = 0; at < localStorage.length; at += 1) {
    const name = localStorage.key(at);
    if (name.startsWith(PREFIX)) {
      const value = localStorage.getItem(name);
      found.push([name, value.length, Number.parseInt(value, 10)]);
    }
  }
  return found.sort((one, other) => one[2] - other[2]);
}
