"""Parses SGLang's replies to `/generate`. Pure functions: a malformed reply raises UnusableReply.

A reply holds `output_ids` and `meta_info`. With log probabilities from `logprob_start_len` on, `input_token_logprobs`
and `input_top_logprobs` have an entry for each token of the prompt from there on. The first one is about no token that
was predicted, and the entry of a token is made of the logits before it.
"""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from specpair.protocol.errors import EngineError, Overloaded, SpecPairError

TOP = 4  # likeliest tokens that are asked for: more than tie for the greatest, as logits of 16 bits often do
_BUSY = (429, 503)  # statuses of a server that has no room for another request
_WAIT = 1  # seconds after which a request that had no room is worth another try


class UnusableReply(Exception):
    """A reply that does not fit the request."""


class Judged(NamedTuple):
    """One pass's result for a draft."""

    choices: list[int]  # the target's token at the position of each draft token, and the one behind the draft
    fed: int  # tokens that it read
    cached: int  # tokens that the radix cache held


class StreamChunk(NamedTuple):
    """The new tokens of one stream event."""

    tokens: list[int]
    fed: int  # tokens of the prompt that were read
    cached: int
    done: bool


def judged(reply: Any, prompt: Sequence[int], start: int, size: int) -> Judged:
    """Read the reply to a prompt of the text and its draft, which begins at `start`; one token was asked for.

    `size`: of the vocabulary.
    """
    meta = _meta(reply)
    output = _ids(reply, size)
    if len(output) != 1:
        raise UnusableReply(f"output_ids has {len(output)} tokens, and one was asked for")
    expected = len(prompt) - start + 1
    echo, tops = (_entries(meta, name, expected) for name in ("input_token_logprobs", "input_top_logprobs"))
    for at, (entry, token) in enumerate(zip(echo, prompt[start - 1 :], strict=True)):
        found = entry[1] if isinstance(entry, list) and len(entry) > 1 else None
        clipped = found == 0 and token >= size - 1  # SGLang does so, lest an image's placeholder be looked up
        if found != token and not clipped:
            raise UnusableReply(f"input_token_logprobs.{at} is about token {found!r}, and the request had {token}")
    choices = [_likeliest(entry, f"input_top_logprobs.{at}", size) for at, entry in enumerate(tops[1:], 1)]
    return Judged([*choices, output[0]], *_read(meta, len(prompt)))


def _likeliest(entry: Any, name: str, size: int) -> int:
    """The likeliest token of an entry of `input_top_logprobs`: of several that tie, the one that `argmax` takes."""
    if not isinstance(entry, list) or not entry:
        raise UnusableReply(f"{name} names no likeliest token")
    scores: list[tuple[float, int]] = []
    for each in entry:
        if not isinstance(each, list) or len(each) < 2:
            raise UnusableReply(f"{name} has {each!r} in place of a log probability and a token")
        score, token = each[0], each[1]
        # JSON has no NaN: SGLang writes null.
        if isinstance(score, bool) or not isinstance(score, int | float) or not isfinite(score):
            raise UnusableReply(f"{name} has the log probability {score!r}: the model's logits are not numbers")
        scores.append((-score, _id(token, name, size)))
    return min(scores)[1]


class Stream:
    """Reads the events of one stream, in order. By the server's flags, an event has all tokens so far, or only the new
    ones: their number tells which.
    """

    def __init__(self, prompt_len: int, size: int) -> None:
        self._prompt_len, self._size, self._seen = prompt_len, size, 0

    def piece(self, line: str) -> StreamChunk | None:
        """The new tokens in a line of the stream; None: none. Raises SpecPairError for an error event of SGLang."""
        data = line[5:].strip()
        if not line.startswith("data:") or data == "[DONE]":
            return None
        event = parsed(data)
        if isinstance(event, dict) and "error" in event:
            raise refused(_number(event["error"], "code"), event)
        meta = _meta(event)
        told, total = _ids(event, self._size), meta.get("completion_tokens")
        if not isinstance(total, int):
            raise UnusableReply(f"completion_tokens is {total!r}")
        # Events that tell all tokens may be a token ahead of their own number.
        tokens = told[self._seen :] if len(told) >= total else told
        if len(told) < total and self._seen + len(told) != total:
            raise UnusableReply(
                f"output_ids has {len(told)} tokens after {self._seen}, and completion_tokens is {total}"
            )
        first = not self._seen
        self._seen += len(tokens)
        fed, cached = _read(meta, self._prompt_len)
        return StreamChunk(tokens, fed if first else 0, cached, meta.get("finish_reason") is not None)


def parsed(content: str | bytes) -> Any:
    """The JSON in a reply."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise UnusableReply("it is no JSON") from None


def refused(status: int, body: Any) -> SpecPairError:
    """The error for a reply with this status."""
    told = _message(body) or "no reason is told"
    if status in _BUSY:
        return Overloaded(f"SGLang has no room: {told}", retry_after=_WAIT)
    return EngineError(f"SGLang answers HTTP {status}: {told}")


def _message(body: Any) -> str | None:
    """The message in one of the shapes that SGLang's errors have."""
    error = body.get("error", body) if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(message.split())[:500] if isinstance(message, str) else None


def _number(error: Any, name: str) -> int:
    """The HTTP status in the field `name` of an error."""
    status = error.get(name) if isinstance(error, dict) else None
    return status if isinstance(status, int) else 500


def _meta(reply: Any) -> Mapping[str, Any]:
    """The `meta_info`. Raises UnusableReply for an end that the request did not ask for, and the error of one that
    SGLang aborted."""
    meta = reply.get("meta_info") if isinstance(reply, dict) else None
    if not isinstance(meta, dict):
        raise UnusableReply("it has no meta_info")
    match meta.get("finish_reason"):
        case None | {"type": "length"} | {"type": "stop", "matched": int()}:
            return meta
        case {"type": "abort"} as reason:
            raise refused(_number(reason, "status_code"), reason)
        case {"type": "stop", "matched": "NaN happened"}:
            raise UnusableReply("the model's logits are not numbers")
        case reason:
            raise UnusableReply(f"finish_reason is {reason!r}")


def _entries(meta: Mapping[str, Any], name: str, expected: int) -> list[Any]:
    entries = meta.get(name)
    if not isinstance(entries, list) or len(entries) != expected:
        found = f"{len(entries)} entries" if isinstance(entries, list) else f"{entries!r}"
        raise UnusableReply(f"{name} has {found}, expected are {expected}")
    return entries


def _ids(reply: Mapping[str, Any], size: int) -> list[int]:
    ids = reply.get("output_ids")
    if not isinstance(ids, list):
        raise UnusableReply(f"output_ids is {ids!r}")
    return [_id(each, "output_ids", size) for each in ids]


def _id(value: Any, name: str, size: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < size:
        raise UnusableReply(f"{name} has {value!r}, which is none of the {size} token ids")
    return value


def _read(meta: Mapping[str, Any], prompt_len: int) -> tuple[int, int]:
    """How many of the prompt's tokens the pass read, and how many the cache held."""
    cached, of = meta.get("cached_tokens"), meta.get("prompt_tokens")
    if of != prompt_len:
        raise UnusableReply(f"prompt_tokens is {of!r}, for a prompt of {prompt_len} tokens")
    if not isinstance(cached, int):
        raise UnusableReply(f"cached_tokens is {cached!r}")
    cached = max(0, min(cached, prompt_len))  # a text that was read twice, as memory was short, counts twice
    return max(1, prompt_len - cached), cached
