// One answer: asks for it, and takes in its chunks.

import { Failure, ask, brokenOff, events } from "./api.js";
import { grow } from "./calls.js";
import { messages } from "./export.js";
import { members } from "./settings.js";
import { members as calling } from "./tools.js";

const LIKELIEST = 5; // of the target's tokens at a place, where probabilities are told

// Fills `answer` (`{content, thoughts, calls, tokens}`) with the answer to `chat`, and calls `grown` after each part of it and in
// silence. A model without a chat template continues the conversation's text instead. Raises Failure, AbortError,
// and SyntaxError for tools or a schema that are no such thing.
export async function fill(answer, chat, signal, grown) {
  const asked = { ...chat, messages: chat.messages.filter((each) => each !== answer) };
  const body = { ...members(chat.settings), ...calling(chat.calling) };
  const ranks = body.token_details === "decisions";
  try {
    const likeliest = ranks ? { logprobs: true, top_logprobs: LIKELIEST } : {};
    await take(answer, stream("v1/chat/completions", { ...body, ...likeliest, messages: messages(asked) }, signal), grown);
  } catch (error) {
    if (!(error instanceof Failure) || error.code !== "no_chat_template" || body.tools) throw error;
    answer.continued = true;
    const prompt = messages(asked).map((each) => each.content).join("");
    const likeliest = ranks ? { logprobs: LIKELIEST } : {};
    await take(answer, stream("v1/completions", { ...body, ...likeliest, prompt }, signal), grown);
  }
}

const ALONE = { tokens: 32, question: "Write a few sentences about the sea." };

// Have the target write a short text by itself, after the prompt of the last answer of `chat`, or after a question of its
// own. Returns its timings. Raises as `fill` does.
export async function fillAlone(chat, signal) {
  const end = chat.messages.findLastIndex((each) => each.role !== "assistant") + 1;
  const asked = end ? chat.messages.slice(0, end) : [{ role: "user", content: ALONE.question }];
  const { draft_n: _, token_details: __, ...settings } = chat.settings;
  Object.assign(settings, { mode: "off", max_tokens: ALONE.tokens, ignore_eos: true });
  const answer = { role: "assistant", content: "" };
  await fill(answer, { settings, messages: asked }, signal, () => {});
  return answer.timings;
}

// The tokens with the target's likeliest ones at their place, and their rank among these, from log probabilities: as chats
// have them, or as completions do. A drawn token that is none of them may come behind them.
function withRanks(tokens, logprobs) {
  const chat = logprobs?.content;
  const places = chat ?? logprobs?.top_logprobs;
  if (places?.length !== tokens.length) return tokens;
  return tokens.map((token, at) => {
    const own = chat ? chat[at].token : logprobs.tokens[at];
    const found = chat ? chat[at].top_logprobs.map((each) => [each.token, each.logprob]) : Object.entries(places[at]);
    const top = found.sort((one, other) => other[1] - one[1]).slice(0, LIKELIEST);
    const rank = top.findIndex(([text]) => text === own) + 1;
    return { ...token, rank, top: top.map(([text, logprob]) => [text, Math.exp(logprob)]) };
  });
}

async function take(answer, chunks, grown) {
  for await (const chunk of chunks) {
    if (chunk.comment !== undefined) grown(chunk.comment.trim());
    const choice = chunk.choices?.[0];
    if (choice !== undefined) {
      answer.content += choice.delta?.content ?? choice.text ?? "";
      if (choice.delta?.reasoning_content) answer.thoughts = (answer.thoughts ?? "") + choice.delta.reasoning_content;
      if (choice.delta?.tool_calls) answer.calls = grow(answer.calls ?? [], choice.delta.tool_calls);
      if (choice.token_details) (answer.tokens ??= []).push(...withRanks(choice.token_details, choice.logprobs));
      if (choice.finish_reason) answer.ended = choice.finish_reason;
      grown("");
    }
    if (chunk.timings) answer.timings = chunk.timings;
  }
}

// The chunks of a streamed text as objects; a comment, which comes in silence, as `{comment}`.
async function* stream(path, body, signal) {
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
  throw brokenOff();
}
