"""Makes sessions from requests: tokenizes the prompt and checks it against the model's vocabulary and context."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from specpair.engines.vocabulary import PromptSpan
from specpair.grammar.of_text import grammars_for
from specpair.options.option import options_of
from specpair.protocol import messages
from specpair.protocol.errors import EmptyPrompt, InvalidRequest, PromptTooLong, TokenOutOfRange
from specpair.speculation.sampling import gumbel
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.interface import EngineInfo
from verifier_server.sessions import Session

P = TypeVar("P", messages.PrefillRequest, messages.GenerateRequest)

_LONG_TEXT = 4096  # characters of a text that is not encoded in the event loop


def make_session(
    info: EngineInfo, session_id: str, request: messages.PrefillRequest | messages.GenerateRequest
) -> Session:
    """A new session for `request`, with the `committed_ids` that it brings.

    Raises EmptyPrompt, PromptTooLong, TokenOutOfRange, and InvalidRequest for invalid Unicode, `committed_ids` or a
    grammar.
    """
    if request.prompt_ids is not None:
        ids = request.prompt_ids
        check_ids(info, "prompt_ids", ids)
    else:
        ids = encode_text(info, "prompt", request.prompt or "")
    if not ids or request.prompt == "":
        raise EmptyPrompt("the prompt is empty: give at least one token to continue")
    if len(ids) >= info.context_length:
        raise PromptTooLong(
            f"the prompt has {len(ids)} tokens, the context holds {info.context_length} with the answer: "
            "shorten the prompt, or start the verifier with a larger context",
            prompt_len=len(ids),
            context_length=info.context_length,
        )
    spec, limit = request.spec, info.context_length
    if spec.seed is None:
        spec = replace(spec, seed=secrets.randbelow(gumbel.SEED_LIMIT))
    _check_served(info, spec)
    if max(spec.logit_bias, default=0) >= info.vocabulary.size:
        first = min(each for each in spec.logit_bias if each >= info.vocabulary.size)
        what = f"token id {first} is outside of the vocabulary of {info.vocabulary.size} ids"
        raise TokenOutOfRange(f"logit_bias: {what}", param=f"logit_bias.{first}")
    if spec.max_tokens is not None:
        limit = min(limit, len(ids) + spec.max_tokens)
    grammars = grammars_for(spec, info.vocabulary)
    session = Session(session_id, list(ids), len(ids), spec, limit, info.vocabulary.ends, grammars=grammars)
    if request.committed_ids:
        _check_committed(info, request.committed_ids, limit - len(ids))
        session.resume(request.committed_ids)
    return session


def prediction_of(info: EngineInfo, request: messages.GenerateRequest) -> list[int] | None:
    """Token ids of the request's prediction of the output; None: it has none.

    Raises PromptTooLong for more tokens than the context holds, TokenOutOfRange, and InvalidRequest for invalid
    Unicode.
    """
    field, ids = "prediction_ids", request.prediction_ids
    if request.prediction is not None:
        field, ids = "prediction", encode_text(info, "prediction", request.prediction, add_begin=False)
    if ids is None:
        return None
    if len(ids) > info.context_length:
        raise PromptTooLong(
            f"{field}: {len(ids)} tokens are more than the context of {info.context_length} holds: shorten it",
            context_length=info.context_length,
        )
    check_ids(info, field, ids)
    return ids


def encode_text(
    info: EngineInfo, field: str, text: str, *, add_begin: bool = True, parse_control: bool = False
) -> list[int]:
    """Token ids of `text`; `field` is its name in errors. Raises what `_encoded` raises."""
    flags = {"add_begin": add_begin, "parse_control": parse_control}
    return _encoded(info, field, [text], lambda: info.vocabulary.encode(text, **flags))


def encode_parts(info: EngineInfo, field: str, parts: Sequence[PromptSpan]) -> list[int]:
    """Token ids of a prompt in parts; `field` is its name in errors. Raises what `_encoded` raises."""
    return _encoded(info, field, [each.text for each in parts], lambda: info.vocabulary.encode_parts(parts))


def _encoded(info: EngineInfo, field: str, texts: Sequence[str], encode: Callable[[], list[int]]) -> list[int]:
    """The result of `encode`, which encodes `texts`; `field` is their name in errors.

    Raises InvalidRequest for lone surrogates, which JSON can carry but Unicode text cannot. Raises PromptTooLong
    without tokenizing if even the vocabulary's longest tokens would be too many: tokenizing megabytes takes seconds,
    during which the event loop answers no other request.
    """
    size = sum(len(text.encode(errors="surrogatepass")) for text in texts)
    longest = info.vocabulary.longest
    if size >= info.context_length * longest:
        raise PromptTooLong(
            f"{field}: {size} bytes are more than {size // longest} tokens, the context holds "
            f"{info.context_length}: shorten it, or start the verifier with a larger context",
            prompt_len=size // longest,
            context_length=info.context_length,
        )
    try:
        return encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest.at(field, f"not valid Unicode text: {error.reason}") from None


async def in_thread(length: int, encode: Callable[[], list[int]]) -> list[int]:
    """Run `encode` for a text of `length` characters, a long one in a thread, since encoding it takes milliseconds."""
    return encode() if length <= _LONG_TEXT else await asyncio.to_thread(encode)


async def with_ids(info: EngineInfo, request: P) -> P:
    """`request` with its long texts as token ids."""
    ids: dict[str, list[int] | None] = {}
    for field, add_begin in (("prompt", True), ("prediction", False)):
        text = getattr(request, field, None)
        if text is not None and len(text) > _LONG_TEXT:
            encode = partial(encode_text, info, field, text, add_begin=add_begin)
            ids |= {field: None, f"{field}_ids": await asyncio.to_thread(encode)}
    return request.model_copy(update=ids) if ids else request


def _check_committed(info: EngineInfo, ids: list[int], most: int) -> None:
    """Raise TokenOutOfRange, or InvalidRequest for more than `most` ids or for ids after an end token."""
    field = "committed_ids"
    if len(ids) > most:
        what = f"{len(ids)} tokens are more than the {most} that max_tokens and the context leave room for"
        raise InvalidRequest.at(field, what)
    check_ids(info, field, ids)
    ends = info.vocabulary.ends
    at = next((at for at, token in enumerate(ids[:-1]) if token in ends), None)
    if at is not None:
        raise InvalidRequest.at(f"{field}.{at}", f"token {ids[at]} ends the text, and others follow it")


def _check_served(info: EngineInfo, spec: TextSpec) -> None:
    """Raise InvalidRequest for an option that the engine cannot serve, with the reason."""
    if spec.strategy not in info.strategies:
        able = ", ".join(info.strategies)
        raise InvalidRequest.at("strategy", f"the {info.name} engine judges by {able}, not by {spec.strategy}")
    for name, reason in info.lacks.items():
        if getattr(spec, name) != options_of(TextSpec)[name].default:
            raise InvalidRequest.at(name, reason)


def check_ids(info: EngineInfo, field: str, ids: list[int]) -> None:
    """Raise TokenOutOfRange for the first of `ids` that the vocabulary lacks; `field` is their name in errors."""
    size = info.vocabulary.size
    if ids and not (0 <= min(ids) and max(ids) < size):
        at = next(at for at, token in enumerate(ids) if not 0 <= token < size)
        raise TokenOutOfRange.at(f"{field}.{at}", f"token id {ids[at]} is outside of the vocabulary of {size} ids")
