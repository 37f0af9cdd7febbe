"""How many bytes the messages between a drafter and a verifier have, by the number of their tokens.

The models of the protocol encode the bodies, once with one token and once with many, so the sizes follow what ships.
The heads of HTTP are as measured between the client and the server that ship. As in the drafter's `Traffic`, what
carries these bytes is left out: the framing of chunks, TLS, and some 40 bytes for each packet of TCP.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from specpair.http_service.replies.events import event_bytes
from specpair.protocol.errors import Overloaded
from specpair.protocol.fingerprint import Fingerprint
from specpair.protocol.messages import GenerateRequest, PrefillRequest, VerifyRequest, build
from specpair.protocol.response_fields import SamplingReport, Timing
from specpair.protocol.responses import (
    ErrorResponse,
    GenerateOpenEvent,
    GenerateTokensEvent,
    PrefillResponse,
    StreamedTokens,
    VerifyResponse,
)
from specpair.speculation.draft import Draft
from specpair.speculation.policy.rejection_policy import RejectionPolicy
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec

DIGITS = 4  # of a token id: 3.4 were measured with the 152,000 ids of Qwen2.5, 4.5 with the 262,000 of Gemma 3
_SAMPLE = 64  # tokens by which two messages of a kind differ, which shows what each takes
_WORD = "word"  # of a token: text has about four characters for each
# Bytes of heads, with a session's id and without a key: of requests, of replies, of a stream.
_ASKED, _REPLIED, _STREAMED = 205, 206, 277
_PROBE, _PROBE_REPLY = 106, 294  # of a request to `/health`, and of the reply with its body
_LISTEN = 27  # of the header of a prefill that asks for the session's stream behind the reply
_RELEASE, _RELEASE_REPLY = 220, 222  # of a request that releases a session, and of the reply with its body

# Values that are about as long as real ones.
_SESSION, _IDENTITY, _MODEL, _HASH = "0" * 32, f"{0:016}-{0:08}", "qwen2.5-coder-1.5b", "0" * 64
_POSITION, _TIMING = 1000, Timing(queue_ms=1.234, forward_ms=12.345, sessions=16, tokens=100)
_SAMPLING = SamplingReport.of(replace(TextSpec.of(Sampling()), seed=2**50))


class Size(NamedTuple):
    """Bytes of a kind of message."""

    empty: float  # of one without tokens, the head included
    token: float  # of each token

    def of(self, tokens: int) -> float:
        """Of a message with so many tokens."""
        return self.empty + tokens * self.token


class MessageSizes:
    """The sizes of all messages, where the ids of tokens have a number of `digits`."""

    def __init__(self, digits: int = DIGITS) -> None:
        def size(head: int, body: Callable[[list[int]], bytes]) -> Size:
            one, many = (len(body([10 ** (digits - 1)] * count)) for count in (1, 1 + _SAMPLE))
            token = (many - one) / _SAMPLE
            return Size(head + one - token, token)

        self.prefill = size(_ASKED, _prefill)  # tokens of the prompt, and of the output that the device has
        self.prefill_reply = size(_REPLIED, _prefill_reply)  # tokens of the prompt, which the reply repeats
        self.prefill_streamed = size(_STREAMED, lambda ids: event_bytes(_prefill_reply(ids), "open"))
        self.verify = size(_ASKED, _verify)  # tokens of the draft
        self.verify_tree = size(_ASKED, _verify_tree)  # the same where it is a tree
        self.verify_reply = size(_REPLIED, _verify_reply)  # committed tokens
        self.verify_tree_reply = size(_REPLIED, lambda ids: _verify_reply(ids, [1] * len(ids)))
        self.streamed = size(0, _streamed)  # tokens of an event of a session's stream
        self.generate = size(_ASKED, _generate)  # tokens as of `prefill`
        self.generate_opened = float(_STREAMED + len(_generate_opened()))  # the head of the stream, and its first event
        self.generated = size(0, _generated)  # tokens of an event of `/generate`
        self.refusal = float(_REPLIED + len(_refusal()))  # by an overloaded verifier
        self.listen, self.release, self.release_reply = float(_LISTEN), float(_RELEASE), float(_RELEASE_REPLY)
        self.probe, self.probe_reply = float(_PROBE), float(_PROBE_REPLY)  # that measure the link


def _prompted(ids: list[int]) -> dict[str, Any]:
    return {"temperature": 0.0, "max_tokens": _POSITION, "session_id": _SESSION, "prompt_ids": ids}


def _prefill(ids: list[int]) -> bytes:
    return build(PrefillRequest, _prompted(ids) | {"self_continue": True, "next_in_ms": 12.3}).body()


def _prefill_reply(ids: list[int]) -> bytes:
    return PrefillResponse(
        session_id=_SESSION,
        prompt_len=_POSITION,
        prompt_ids=ids,
        position=_POSITION,
        tokens=ids[:1],
        total_tokens=_POSITION,
        finish_reason=None,
        model=_MODEL,
        identity=_IDENTITY,
        vocabulary=Fingerprint(10**5, 10**5, 10**5, (10**5,), _HASH, _HASH, _HASH),
        sampling=_SAMPLING,
        self_continue=True,
        timing=_TIMING,
        sources=["b"],
    ).body()


def _verify(ids: list[int]) -> bytes:
    return VerifyRequest.of(Draft.chain(_POSITION, ids), RejectionPolicy(None, 0.0123)).body()


def _verify_tree(ids: list[int]) -> bytes:
    request = VerifyRequest.of(Draft.chain(_POSITION, ids), RejectionPolicy(None, 0.0123))
    return request.model_copy(update={"draft_parents": [1] * len(ids)}).body()


def _verify_reply(ids: list[int], path: list[int] | None = None) -> bytes:
    return VerifyResponse(
        position=_POSITION,
        accepted=1,
        accepted_path=path,
        judged=1,
        tokens=ids,
        preds=ids,
        sources=["a"] * len(ids),
        total_tokens=_POSITION,
        finish_reason=None,
        timing=_TIMING,
    ).body()


def _streamed(ids: list[int]) -> bytes:
    event = StreamedTokens(position=_POSITION, tokens=ids, sources=["a"] * len(ids), target_decoded=False)
    return event_bytes(event.body(), "tokens")


def _generate(ids: list[int]) -> bytes:
    return build(GenerateRequest, _prompted(ids) | {"stream": True}).body()


def _generate_opened() -> bytes:
    event = GenerateOpenEvent(
        session_id=_SESSION, prompt_len=_POSITION, position=_POSITION, identity=_IDENTITY, sampling=_SAMPLING
    )
    return event_bytes(event.body(), "open")


def _generated(ids: list[int]) -> bytes:
    event = GenerateTokensEvent(position=_POSITION, tokens=ids, sources=["a"] * len(ids), text=_WORD * len(ids))
    return event_bytes(event.body(), "tokens")


def _refusal() -> bytes:
    return ErrorResponse.of(Overloaded("256 requests wait: try again later", retry_after=1.234)).body()


SIZES = MessageSizes()
