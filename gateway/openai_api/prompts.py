"""Makes prompts of the inputs of requests: texts, gaps in a text, conversations. Checks requests against the target:
its context, its vocabulary, and limits that keep requests from delaying others."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from itertools import takewhile
from typing import Any

from gateway.openai_api.chat.prompt import chat_parts
from gateway.openai_api.chat.template import Renderer
from gateway.openai_api.messages.objects import shown
from gateway.openai_api.messages.requests import ChatRequest
from gateway.openai_api.texts import Target, TextSource
from specpair.engines.vocabulary import Kind, PromptSpan, Vocabulary
from specpair.http_service.hints import take_hint
from specpair.protocol.errors import (
    EmptyPrompt,
    InvalidRequest,
    NoChatTemplate,
    PromptTooLong,
    TokenOutOfRange,
    UnknownModel,
)

MOST_BIASES = 100_000  # entries of `logit_bias`, over all texts of a request


def check_model(name: str | None, target: Target) -> None:
    """Raise UnknownModel for the name of another model."""
    if name not in (None, "", target.name):
        raise UnknownModel(f"model: {str(name)[:80]!r} is not served here, {target.name!r} is", param="model")


def check_ids(name: str, ids: Sequence[int], target: Target) -> None:
    """Raise TokenOutOfRange for the first of `ids` that the target lacks."""
    wrong = next((token for token in ids if not 0 <= token < target.vocabulary.size), None)
    if wrong is not None:
        raise TokenOutOfRange(
            f"{name}: {shown(str(wrong))} is no token id of this model: 0 to {target.vocabulary.size - 1}", param=name
        )


def check_bias(biases: Mapping[str, float], texts: int, target: Target) -> None:
    """Raise an error for an id that the target lacks, or for so many biases that they delay passes."""
    if len(biases) * texts > MOST_BIASES:
        raise InvalidRequest(
            f"logit_bias: {len(biases)} biases for {texts} texts, at most {MOST_BIASES // texts} are taken for each: "
            "send fewer texts in a request",
            param="logit_bias",
        )
    check_ids("logit_bias", [int(token) for token in biases], target)


def check_draft_n(draft_n: int | None, target: Target) -> None:
    """Raise InvalidRequest for more draft tokens in a round than the verifier takes."""
    if draft_n is not None and draft_n > target.max_drafts:
        raise InvalidRequest(
            f"speculative.draft_n: {draft_n} is more than the {target.max_drafts} draft tokens that the verifier "
            "judges at once",
            param="speculative.draft_n",
        )


def check_fits(name: str, tokens: int, target: Target, what: str = "tokens") -> None:
    """Raise EmptyPrompt or PromptTooLong for a prompt of `tokens` tokens, or of parts of a token each: `what`."""
    if not tokens:  # some vocabularies have no begin token and drop spaces: a prompt of spaces becomes empty
        raise EmptyPrompt(f"{name}: the model reads it as empty: give at least one token", param=name)
    if tokens >= target.context_length:
        raise PromptTooLong(
            f"{name}: {tokens} {what}, the context holds {target.context_length} tokens with the answer: shorten it",
            prompt_len=tokens,
            context_length=target.context_length,
            param=name,
        )


def check_size(name: str, size: int, target: Target) -> None:
    """Raise PromptTooLong if `size` bytes are too many even in the vocabulary's longest tokens.

    To encode megabytes takes seconds.
    """
    least = size // target.vocabulary.longest
    if least >= target.context_length:
        raise PromptTooLong(
            f"{name}: {size} bytes are more than {least} tokens, the context holds {target.context_length} with the "
            "answer: shorten it",
            prompt_len=least,
            context_length=target.context_length,
            param=name,
        )


# How each family spells these. Without one for the middle, what comes before the gap stands last.
_FAMILIES: tuple[tuple[str, str, str | None], ...] = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder  # noqa: RUF001
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
    (" <PRE>", " <SUF>", " <MID>"),  # CodeLlama, as llama.cpp reads its file
    ("<PRE>", "<SUF>", "<MID>"),
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM
    ("[PREFIX]", "[SUFFIX]", None),  # Codestral
)


InfillTokens = tuple[int, int, int | None]  # before the text before the gap, the text behind it, and the middle


def infill_tokens(vocabulary: Vocabulary) -> InfillTokens | None:
    """A vocabulary's infill tokens; None: it has none."""
    for family in _FAMILIES:
        prefix, suffix, middle = (None if name is None else vocabulary.token_of(name) for name in family)
        if prefix is not None and suffix is not None and (middle is None) == (family[2] is None):
            return prefix, suffix, middle
    return None


def infill_ids(tokens: InfillTokens, vocabulary: Vocabulary, before: str, behind: str) -> list[int]:
    """The prompt for a gap between two texts. Control tokens that they spell out are not read."""
    begin, (of_prefix, of_suffix, middle) = vocabulary.encode(""), tokens  # no token if texts do not start with one
    prefix = [of_prefix, *vocabulary.encode(before, add_begin=False)]
    suffix = [of_suffix, *vocabulary.encode_after_token(behind)]
    return [*begin, *suffix, *prefix] if middle is None else [*begin, *prefix, *suffix, middle]


def _note_control(vocabulary: Vocabulary, text: str) -> None:
    """Name it in the reply if control tokens that a text spells out are mere text."""
    pattern = vocabulary.derived.get("control tokens")
    if pattern is None:
        spelled = {vocabulary.spelled(at) for at, kind in enumerate(vocabulary.kinds) if kind == Kind.CONTROL} - {""}
        pattern = vocabulary.derived["control tokens"] = re.compile("|".join(map(re.escape, spelled)) or "(?!)")
    if pattern.search(text) is not None:
        take_hint("prompt.control_tokens", strictly=False)  # a note: the text is what was asked for


_MESSAGES = "messages"  # the field of a conversation


class Prompts:
    """The prompts of one service. Its methods raise SpecPairError, which names the field. Close it with the
    application."""

    def __init__(self, source: TextSource, *, keep_lines: bool = False) -> None:
        """`keep_lines`: whether the lines in `LINES` stay in conversations."""
        self._source, self._keep_lines = source, keep_lines
        self._renderer = Renderer()
        # Of its own, since a template may take long: the shared threads have to encode the prompts of others.
        self._rendering = ThreadPoolExecutor(1, thread_name_prefix="template")

    def close(self) -> None:
        """End the process that renders chat templates."""
        self._rendering.shutdown(wait=False, cancel_futures=True)
        self._renderer.close()

    async def of_text(self, name: str, given: str | list[int], target: Target, *, control: bool) -> list[int]:
        """The ids of a prompt, text or ids, in the field `name`. `control`: whether control tokens that it spells out
        are meant."""
        if isinstance(given, str):
            check_size(name, len(given.encode()), target)
            if not control:
                _note_control(target.vocabulary, given)
            ids = await self._source.encoding(lambda vocabulary: vocabulary.encode_parts([PromptSpan(given, control)]))
            check_fits(name, len(ids), target)
            return ids
        check_fits(name, len(given), target)
        check_ids(name, given, target)
        return given

    async def of_gap(self, name: str, given: str | list[int], suffix: str, target: Target) -> list[int]:
        """The ids of a prompt for the gap between a text, in the field `name`, and a suffix."""
        tokens = infill_tokens(target.vocabulary)
        if tokens is None:
            raise InvalidRequest(
                f"suffix: not supported: the vocabulary of {target.name} has no fill-in-the-middle tokens (that of "
                "Qwen2.5-Coder has some, for example): leave it out",
                param="suffix",
            )
        if not isinstance(given, str):
            raise InvalidRequest("suffix: it goes with prompts that are text, not with token ids", param="suffix")
        check_size(name, len(given.encode()) + len(suffix.encode()), target)
        _note_control(target.vocabulary, given + suffix)
        ids = await self._source.encoding(lambda vocabulary: infill_ids(tokens, vocabulary, given, suffix))
        check_fits(name, len(ids), target)
        return ids

    async def of_parts(self, parts: Sequence[PromptSpan], target: Target) -> list[int]:
        """The ids of a rendered conversation."""
        ids = await self.encoded(parts)
        check_fits(_MESSAGES, len(ids), target)
        return ids

    async def encoded(self, parts: Sequence[PromptSpan]) -> list[int]:
        """The ids of a rendered conversation, however many."""
        return await self._source.encoding(lambda vocabulary: vocabulary.encode_parts(parts))

    async def rendered(self, message: ChatRequest, target: Target, opening: str = "") -> list[PromptSpan]:
        """The text of a conversation in the target's chat template, up to where the answer begins.

        `opening`: what the answer begins with; it is the last part then.
        """
        if not target.chat_template:
            raise NoChatTemplate(
                f"{target.name} has no chat template: send a prompt to /v1/completions, or serve an instruct model"
            )
        run = asyncio.get_running_loop().run_in_executor
        known = await run(self._rendering, self._renderer.variables, target.chat_template)
        variables = message.template_variables(known)
        check_fits(_MESSAGES, len(message.messages), target, "messages")
        check_size(_MESSAGES, sum(len(each.text.encode()) for each in message.messages), target)
        messages = [each.for_template() for each in message.messages]
        parts = await run(
            self._rendering,
            copy_context().run,  # which collects the request's hints
            partial(
                chat_parts,
                target.chat_template,
                target.vocabulary,
                messages if self._keep_lines else without_lines(messages),
                self._renderer,
                variables,
                calls=bool(message.callable_tools),
            ),
        )
        if opening:
            parts = [*parts, PromptSpan(opening, control=False)]
        check_size(_MESSAGES, sum(len(part.text.encode()) for part in parts), target)
        return parts


Json = dict[str, Any]
# Lines that agents put on top of their system prompt, which change with each request and say nothing to the model.
# Without them, a prompt begins as the one before. By the name that the reply has for a line that is left out.
LINES: Mapping[str, re.Pattern[str]] = {
    # Claude Code's: pairs of a name and a value, such as `cch`, a hash over the request. Text may follow at once.
    "x-anthropic-billing-header": re.compile(r"x-anthropic-billing-header:(?:[ \t]*\w+=[^\s;]*;?)+\s*"),
}


def without_lines(messages: Sequence[Json]) -> list[Json]:
    """The messages for a chat template without these lines, where system messages, or parts of them, begin with one.

    The header `x-specpair-ignored` of the present request's reply names the lines.
    """
    leading = [*takewhile(lambda each: each["role"] == "system", messages)]
    changed = [each | {"content": _content(each["content"], f"messages.{at}")} for at, each in enumerate(leading)]
    return [*changed, *messages[len(leading) :]]


def _content(content: str | list[Json], path: str) -> str | list[Json]:
    if isinstance(content, str):
        return _text(content, path)
    parts = [part | {"text": _text(part["text"], path)} for part in content]
    return [part for part in parts if part["text"]] or parts


def _text(text: str, path: str) -> str:
    for name, line in LINES.items():
        if (found := line.match(text)) is not None:
            take_hint(f"{path}.{name}", strictly=False)
            text = text[found.end() :]
    return text
