"""Prompts for real models, by kind of text, and the target's texts.

The kinds are the six of Spec-Bench (Xia et al. 2024, arXiv 2401.07851) — conversations, translations, summaries,
questions, problems with numbers, answers from passages — and code, editing, extraction, tools and stories. The prompts
are those of the cases that `drafter bench` ships, and those of `prompts.yaml`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gateway.openai_api.chat.prompt import chat_parts
from gateway.openai_api.chat.template import Renderer
from lab.bench.case_files import shipped_cases
from lab.benchmarks.harness.models import held_out_prompts
from specpair.engines.backend import Backend, Entry, Logits
from specpair.speculation.sampling.sampling import Sampling, choose
from tests.real_models.conversation import SYSTEM, TOOLS, TURNS

PROMPTS = Path(__file__).with_name("prompts.yaml")
CONTEXT = 2048  # tokens: enough for every prompt and 1,000 tokens behind it
MOST_TOGETHER = 8  # texts that a target writes in one pass
_CASES = {
    "code": ("code", "humaneval"),
    "editing": ("editing",),
    "extraction": ("extraction",),
    "summary": ("summary",),
    "numbers": ("gsm8k",),
}
_PASS = 256  # tokens
_ANSWER = 160  # tokens of an answer in a conversation, at most
Message = dict[str, Any]
Asked = Callable[..., list[int]]


def prompts_by_kind(target: Backend, renderer: Renderer, most: int) -> Iterator[tuple[str, list[list[int]]]]:
    """At most `most` prompts of each kind, as token ids. Later turns of a conversation follow the target's answers. A
    model without a chat template gets beginnings of Python files instead."""
    vocabulary, template = target.vocabulary, target.chat_template
    if template is None:
        yield "code", [vocabulary.encode(text) for text in held_out_prompts(most)]
        return

    def asked(messages: Sequence[Message], tools: Sequence[Message] = ()) -> list[int]:
        variables: Mapping[str, Any] = {"tools": [*tools]} if tools else {}
        return vocabulary.encode_parts(chat_parts(template, vocabulary, messages, renderer, variables))

    cases, own = shipped_cases(), yaml.safe_load(PROMPTS.read_text(encoding="utf-8"))
    for kind in dict.fromkeys([*_CASES, *own]):
        shipped = [each.cut_to(None) for name in _CASES.get(kind, ()) for each in cases[name].prompts]
        texts = [*shipped, *own.get(kind, ())][:most]
        # Code is continued, as an editor asks for it.
        yield kind, [vocabulary.encode(text) if kind == "code" else asked([_said("user", text)]) for text in texts]
    yield "chat", [*_conversations(target, asked, most)]
    yield "tools", [*_tool_prompts(asked, most)]


def written(
    target: Backend, prompts: Sequence[list[int]], most: int, samplings: Sequence[Sampling] = ()
) -> Iterator[list[int]]:
    """The tokens that the target writes behind each prompt, up to its end. `samplings`: one for each; empty: greedy."""
    samplings = samplings or [Sampling()] * len(prompts)
    for at in range(0, len(prompts), MOST_TOGETHER):
        yield from _together(target, prompts[at : at + MOST_TOGETHER], most, samplings[at : at + MOST_TOGETHER])


def _together(
    target: Backend, prompts: Sequence[list[int]], most: int, samplings: Sequence[Sampling]
) -> list[list[int]]:
    texts: list[list[int]] = [[] for _ in prompts]

    def take(slot: int, row: Logits) -> None:
        texts[slot].append(choose(row, samplings[slot], len(prompts[slot]) + len(texts[slot])))

    for slot, prompt in enumerate(prompts):
        target.release(slot)
        for at in range(0, len(prompt), _PASS):
            part = prompt[at : at + _PASS]
            last = at + len(part) == len(prompt)
            rows = target.extend([Entry(slot, at, part, len(part) - last)])[0]
        take(slot, rows[0])
    while going := [
        slot for slot, text in enumerate(texts) if text[-1] not in target.vocabulary.ends and len(text) < most
    ]:
        batch = [Entry(slot, len(prompts[slot]) + len(texts[slot]) - 1, texts[slot][-1:], 0) for slot in going]
        for slot, rows in zip(going, target.extend(batch), strict=True):
            take(slot, rows[0])
    return texts


def _conversations(target: Backend, asked: Asked, most: int) -> Iterator[list[int]]:
    chat, left = shipped_cases()["chat"], most
    for prompt in chat.prompts:
        messages = [_said("system", chat.system or "")]
        for turn in prompt.turns or ():
            if not left:
                return
            messages.append(_said("user", turn))
            ids = asked(messages)
            yield ids
            left -= 1
            (answer,) = written(target, [ids], _ANSWER)
            ends = target.vocabulary.ends
            text = target.vocabulary.decode([token for token in answer if token not in ends])
            messages.append(_said("assistant", text.decode(errors="replace")))


def _tool_prompts(asked: Asked, most: int) -> Iterator[list[int]]:
    """Each turn's question, and the question with its tool's result."""
    messages = [_said("system", SYSTEM)]
    for turn in TURNS[: most // 2]:
        messages.append(_said("user", turn.question))
        yield asked(messages, TOOLS)
        arguments = json.dumps({"asked": turn.words})
        call = {"type": "function", "id": "call", "function": {"name": turn.tool, "arguments": arguments}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "call", "content": turn.result})
        yield asked(messages, TOOLS)
        messages.append(_said("assistant", turn.result))


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}
