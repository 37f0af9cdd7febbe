"""Responses of the verifier as types. Reading one raises BadReply for what no verifier sends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backends.vocabulary import Fingerprint
from drafter_client.http.fields import Fields, broken_promise
from speculation.acceptance.decisions import VERDICTS, Decision

STREAM = "/sessions/…/stream"  # in error texts, for every session


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the verifier serves: its response at `/model`."""

    name: str
    context_length: int
    max_drafts: int  # draft tokens that it judges at once
    pass_ms: list[float]  # of its forward passes over 1, 2, … tokens; may be empty
    self_continue: bool  # whether it supports self-continuation
    vocabulary: Fingerprint
    chat_template: str | None
    modes: tuple[str, ...] = ("target",)  # in which it writes whole texts
    draft_model: str | None = None  # for server-side drafting, mode fused
    draft_pass_ms: float | None = None  # of its forward pass over one token
    engine: str | None = None  # the backend of the target

    @classmethod
    def read(cls, reply: Fields, below: int | None) -> "ModelInfo":
        """`below`: the bound of the ids whose fingerprints were requested; None: of all."""
        return cls(
            name=reply.line("model"),
            context_length=reply.count("context_length", least=1),
            max_drafts=reply.count("max_draft_tokens"),
            pass_ms=reply.all_milliseconds("pass_ms"),
            self_continue=reply.flag("self_continue"),
            vocabulary=_fingerprint(reply.part("vocabulary"), below),
            chat_template=reply.text_or_null("chat_template"),
            modes=tuple(reply.texts("modes")) if reply.has("modes") else ("target",),
            draft_model=reply.line("draft_model") if reply.has("draft_model") else None,
            draft_pass_ms=reply.milliseconds_if_any("draft_pass_ms"),
            engine=reply.line("backend") if reply.has("backend") else None,
        )


def _fingerprint(reply: Fields, below: int | None) -> Fingerprint:
    size = reply.count("size", least=1)
    told = reply.count("below", most=size)
    if below is not None and told != below:
        raise reply.wrong("below", f"is {told} where {below} was asked for")
    return Fingerprint(
        size=size,
        below=told,
        begin=reply.id_or_null("begin", size),
        ends=tuple(reply.ids("ends", size)),
        ordinary=reply.text("ordinary"),
        control=reply.text("control"),
    )


def decisions_on(reply: Fields, tokens: list[int]) -> list[Decision] | None:
    """The decisions on `tokens`, one for each; None where the response has none."""
    parts = reply.parts_if_any("decisions")
    if parts is None:
        return None
    if [part.count("token") for part in parts] != tokens:
        raise reply.wrong("decisions", "are not on the tokens")
    return [
        Decision(
            token=token,
            p=part.share("p"),
            draft=part.count_or_null("draft"),
            draft_p=part.share_if_any("draft_p"),
            q=part.share_if_any("q"),
            drawn=part.share_if_any("drawn"),
            verdict=part.one_of("verdict", VERDICTS),
        )
        for token, part in zip(tokens, parts, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class PrefillResponse:
    """A session after its prefill. `tokens`: those after the known ones, at least one unless the text has ended."""

    session_id: str
    prompt_ids: list[int]
    tokens: list[int]
    finish_reason: str | None
    sampling: dict[str, Any]
    queue_ms: float
    forward_ms: float
    decisions: list[Decision] | None = None  # on each of `tokens`, where requested

    @classmethod
    def read(
        cls, reply: Fields, session_id: str, prompt_ids: list[int], known: Sequence[int] = ()
    ) -> "PrefillResponse":
        """`session_id`, `prompt_ids` and the `known` tokens are those of the request; the tokens of the response come
        after the known ones. Raises BadReply where the prompt or the position in the response is another."""
        if reply.ids("prompt_ids") != prompt_ids:
            raise reply.wrong("prompt_ids", "is not what was sent")
        due = len(prompt_ids) + len(known)
        if known:
            reply.expect("position", due)
        tokens, timing = reply.ids("tokens"), reply.part("timing")
        if not tokens and not (known and reply.has("finish_reason")):
            raise reply.wrong("tokens", "is empty")
        return cls(
            session_id=session_id,
            prompt_ids=prompt_ids,
            tokens=tokens,
            finish_reason=reply.finish_reason(),
            sampling=reply.settings("sampling"),
            queue_ms=timing.milliseconds("queue_ms"),
            forward_ms=timing.milliseconds("forward_ms"),
            decisions=decisions_on(reply, tokens),
        )


@dataclass(frozen=True, slots=True)
class VerifyResponse:
    """Response to a verify request: committed tokens from its position on, at least one until the text has ended."""

    accepted: int
    judged: int
    tokens: list[int]
    finish_reason: str | None
    queue_ms: float
    forward_ms: float
    sessions: int = 1  # that shared the pass
    decisions: list[Decision] | None = None  # on each of `tokens`, where requested
    unjudged: int = 0  # draft tokens at the end for which the session's credit did not suffice

    @property
    def ran(self) -> bool:
        """Whether the model ran for this request: not if it was out of date, nor if a longer request contained it."""
        return self.judged > 0 or self.forward_ms > 0.0

    def recorded(self, drafts: int) -> int:
        """How many of the tokens were committed before this request of `drafts` draft tokens: all, if it never ran.

        The judged draft tokens are the last ones except the unjudged, since none is sent for positions beyond the
        target's last token.
        """
        if self.judged:
            return drafts - self.unjudged - self.judged
        return len(self.tokens) - self.ran

    def judged_accepted(self, drafts: int) -> int:
        """How many of the judged draft tokens were accepted, of the `drafts` that the request had.

        `accepted` counts more: draft tokens that had been committed before, and one that was not judged and equals the
        target's token after the judged ones.
        """
        return min(max(0, self.accepted - self.recorded(drafts)), self.judged)

    @classmethod
    def read(cls, reply: Fields, drafts: int) -> "VerifyResponse":
        """`drafts`: how many draft tokens the request had."""
        tokens, finish_reason, timing = reply.ids("tokens"), reply.finish_reason(), reply.part("timing")
        if not tokens and finish_reason is None:
            raise reply.wrong("tokens", "is empty, and the text has not ended")
        return cls(
            accepted=reply.count("accepted_prefix_len", most=min(drafts, len(tokens))),
            judged=reply.count("judged", most=drafts),
            tokens=tokens,
            finish_reason=finish_reason,
            queue_ms=timing.milliseconds("queue_ms"),
            forward_ms=timing.milliseconds("forward_ms"),
            sessions=timing.count("sessions"),
            decisions=decisions_on(reply, tokens),
            unjudged=reply.count("unjudged", most=drafts) if reply.has("unjudged") else 0,
        )


@dataclass(frozen=True, slots=True)
class StreamedTokens:
    """An event of the stream: committed tokens, at least one. `own`: they are target-decoded (self-continuation)."""

    position: int
    tokens: list[int]
    own: bool
    forward_ms: float | None  # of the pass that decoded the last of them, where they are target-decoded
    decisions: list[Decision] | None = None  # on each of `tokens`, where requested

    @classmethod
    def read(cls, event: Fields, due: int) -> "StreamedTokens":
        """`due`: the position after the tokens that the stream has sent so far."""
        position, tokens = event.count("position"), event.ids("tokens")
        if position != due:
            raise event.wrong("position", f"is {position} where {due} is due")
        if not tokens:
            raise event.wrong("tokens", "is empty")
        own, forward_ms = event.flag("own"), event.milliseconds_if_any("forward_ms")
        return cls(position, tokens, own, forward_ms, decisions_on(event, tokens))


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The last event of the stream."""

    finish_reason: str

    @classmethod
    def read(cls, event: Fields, due: int) -> "StreamEnd":
        total, finish_reason = event.count("total_tokens"), event.finish_reason()
        if total != due:
            raise event.wrong("total_tokens", f"is {total} where {due} tokens were told")
        if finish_reason is None:
            raise event.wrong("finish_reason", "is null at the end")
        return cls(finish_reason)


@dataclass(frozen=True, slots=True)
class GenerateResponse:
    """The last event of `/generate`: a text that the verifier wrote, alone or with server-side drafting."""

    finish_reason: str
    sampling: dict[str, Any]
    queue_ms: float
    forward_ms: float
    speculation: "Speculation | None"  # with server-side drafting

    @property
    def milliseconds(self) -> float:
        """All the time that the verifier reports."""
        return self.queue_ms + self.forward_ms + (self.speculation.drafting_ms if self.speculation else 0.0)

    @classmethod
    def read(cls, event: Fields, streamed: list[int]) -> "GenerateResponse":
        """`streamed`: the tokens known before the request, and those of the events before this one."""
        finish_reason, timing = event.finish_reason(), event.part("timing")
        if event.ids("token_ids") != streamed:
            raise event.wrong("token_ids", "is not what was streamed")
        if finish_reason is None:
            raise event.wrong("finish_reason", "is null at the end")
        return cls(
            finish_reason=finish_reason,
            sampling=event.settings("sampling"),
            queue_ms=timing.milliseconds("queue_ms"),
            forward_ms=timing.milliseconds("forward_ms"),
            speculation=Speculation.read(event) if event.has("speculation") else None,
        )


@dataclass(frozen=True, slots=True)
class Speculation:
    """Statistics of server-side drafting, beside those in the events."""

    draft_model: str
    looked_up: int
    looked_up_accepted: int
    drafting_ms: float
    draft_failure: str | None = None  # why drafting ended before the text did

    @classmethod
    def read(cls, summary: Fields) -> "Speculation":
        fields = summary.part("speculation")
        return cls(
            draft_model=summary.line("draft_model"),
            looked_up=fields.count("looked_up"),
            looked_up_accepted=fields.count("looked_up_accepted"),
            drafting_ms=fields.milliseconds("drafting_ms"),
            draft_failure=fields.line("draft_failure") if fields.has("draft_failure") else None,
        )


@dataclass(frozen=True, slots=True)
class ResponseBounds:
    """Bounds of a text: token ids below `ids`, and at most `tokens` of them, the prompt included."""

    url: str
    ids: int
    tokens: int
    ends: frozenset[int] = frozenset()  # ids of end tokens

    def finish_reason(self, text: list[int]) -> str | None:
        """Why `text`, its prompt included, is at its end; None: it is not."""
        if text[-1] in self.ends:
            return "stop"
        return "length" if len(text) >= self.tokens else None

    def check_explained(self, path: str, asked: bool, decisions: list[Decision] | None) -> None:
        """Raise BadReply where decisions were requested and are missing."""
        if asked and decisions is None:
            raise broken_promise(self.url + path, "decisions are missing, and were asked for")

    def check(self, path: str, position: int, tokens: list[int]) -> None:
        """Raise BadReply where `tokens`, from `position` on, exceed the bounds."""
        if tokens and max(tokens) >= self.ids:
            raise broken_promise(self.url + path, f"a token is {max(tokens)}, and the vocabulary has {self.ids} ids")
        end = position + len(tokens)
        if end > self.tokens:
            raise broken_promise(self.url + path, f"the text has {end} tokens, at most {self.tokens} were asked for")
