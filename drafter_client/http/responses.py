"""The verifier's responses as types. `read` makes one from JSON; it raises BadReply for what no verifier sends."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from drafter_client.http.fields import Fields, broken_promise
from speculation.acceptance.explain import Decision, Verdict
from speculation.protocol.fingerprint import Fingerprint

STREAM = "/sessions/…/stream"  # in error texts, for every session


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the verifier serves: the response of `/model`."""

    name: str  # of the target model
    context_length: int  # tokens
    max_drafts: int  # draft tokens that the verifier judges in one request, at most
    pass_ms: list[float]  # milliseconds of target passes over 1, 2, … tokens; empty: not measured
    self_continue: bool  # whether the verifier supports self-continuation
    vocabulary: Fingerprint
    chat_template: str | None
    modes: tuple[str, ...] = ("target",)  # the modes in which the verifier generates whole texts: target, fused
    draft_model: str | None = None  # the drafter on the verifier, for mode fused; None: there is none
    draft_pass_ms: float | None = None  # milliseconds of that drafter's pass over one token; None: not measured
    engine: str | None = None  # the backend that runs the target

    @classmethod
    def read(cls, reply: Fields, below: int | None) -> "ModelInfo":
        """`below`: the ids below it are those whose fingerprints were requested; None: those of all ids were."""
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
    """Read the decisions on `tokens`, one for each; None if the response has no decisions."""
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
            verdict=part.one_of("verdict", get_args(Verdict)),
        )
        for token, part in zip(tokens, parts, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class PrefillResponse:
    """Response to a prefill: committed tokens after those that the request named, at least one until the text ends."""

    session_id: str
    prompt_ids: list[int]
    tokens: list[int]
    finish_reason: str | None  # None: the text has not ended
    sampling: dict[str, Any]  # the settings of the session
    queue_ms: float  # milliseconds that the request waited for a verifier pass
    forward_ms: float  # milliseconds of the verifier passes over the prompt
    decisions: list[Decision] | None = None  # one on each of `tokens`, if requested

    @classmethod
    def read(
        cls, reply: Fields, session_id: str, prompt_ids: list[int], known: Sequence[int] = ()
    ) -> "PrefillResponse":
        """`session_id`, `prompt_ids` and the `known` generated tokens are those of the request. Raises BadReply if the
        response is for another prompt, or its tokens do not begin right after the known ones."""
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

    accepted: int  # draft tokens at the beginning of the draft that equal committed tokens
    judged: int  # draft tokens that the target judged for this request
    tokens: list[int]
    finish_reason: str | None  # None: the text has not ended
    queue_ms: float  # milliseconds that the request waited for a verifier pass
    forward_ms: float  # milliseconds of the verifier passes that ran the request; 0: none did
    sessions: int = 1  # sessions that shared the last of these passes
    decisions: list[Decision] | None = None  # one on each of `tokens`, if requested
    unjudged: int = 0  # draft tokens at the end of the draft that were not judged, as the draft credit was used up

    @property
    def ran(self) -> bool:
        """Whether the target ran for this request: not if its draft was out of date, or contained in a longer one."""
        return self.judged > 0 or self.forward_ms > 0.0

    def recorded(self, drafts: int) -> int:
        """How many of `tokens` had been committed before this request's pass: all of them if it had none.

        `drafts`: how many draft tokens the request had. Before the judged ones are those that had been committed, and
        after them only the unjudged ones, since none is sent for positions beyond the end of the text.
        """
        if self.judged:
            return drafts - self.unjudged - self.judged
        return len(self.tokens) - self.ran

    def judged_accepted(self, drafts: int) -> int:
        """How many of the judged draft tokens were accepted. `drafts`: how many draft tokens the request had.

        `accepted` may count more: draft tokens that had been committed before, and one that was not judged and equals
        the target's token after the judged ones.
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
    """An event of a session's stream: committed tokens from `position` on, at least one."""

    position: int
    tokens: list[int]
    target_decoded: bool  # whether the tokens come from self-continuation
    forward_ms: float | None  # milliseconds of the verifier pass that decoded the last token, if target-decoded
    decisions: list[Decision] | None = None  # one on each of `tokens`, if requested

    @classmethod
    def read(cls, event: Fields, due: int) -> "StreamedTokens":
        """`due`: the position that the event must have, which is that after the tokens of the events before."""
        position, tokens = event.count("position"), event.ids("tokens")
        if position != due:
            raise event.wrong("position", f"is {position} where {due} is due")
        if not tokens:
            raise event.wrong("tokens", "is empty")
        target_decoded, forward_ms = event.flag("own"), event.milliseconds_if_any("forward_ms")
        return cls(position, tokens, target_decoded, forward_ms, decisions_on(event, tokens))


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The last event of a session's stream."""

    finish_reason: str

    @classmethod
    def read(cls, event: Fields, due: int) -> "StreamEnd":
        """`due`: the length of the text, as the events before have it."""
        total, finish_reason = event.count("total_tokens"), event.finish_reason()
        if total != due:
            raise event.wrong("total_tokens", f"is {total} where {due} tokens were told")
        if finish_reason is None:
            raise event.wrong("finish_reason", "is null at the end")
        return cls(finish_reason)


@dataclass(frozen=True, slots=True)
class GenerateResponse:
    """The last event of `/generate`: the summary of a text that the verifier generated in mode target or fused."""

    finish_reason: str
    sampling: dict[str, Any]  # the settings of the session
    queue_ms: float  # milliseconds that the text waited for passes
    forward_ms: float  # milliseconds of the target's passes
    speculation: "Speculation | None"  # None in mode target

    @property
    def milliseconds(self) -> float:
        """All the time that the verifier reports: queue, target passes and drafting."""
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
    """Statistics of server-side drafting that the events before the summary do not have."""

    draft_model: str
    looked_up: int  # looked-up draft tokens that were judged
    looked_up_accepted: int  # looked-up draft tokens that were accepted
    drafting_ms: float  # milliseconds of the server's draft steps
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
    """Bounds of the responses of one text: token ids below `ids`, and at most `tokens` tokens, the prompt included."""

    url: str
    ids: int
    tokens: int
    ends: frozenset[int] = frozenset()  # ids of end tokens

    def finish_reason(self, text: list[int]) -> str | None:
        """Return why `text`, its prompt included, is complete ("stop" or "length"); None if it is not."""
        if text[-1] in self.ends:
            return "stop"
        return "length" if len(text) >= self.tokens else None

    def check_explained(self, path: str, asked: bool, decisions: list[Decision] | None) -> None:
        """Raise BadReply if decisions were requested (`asked`) and are missing."""
        if asked and decisions is None:
            raise broken_promise(self.url + path, "decisions are missing, and were asked for")

    def check(self, path: str, position: int, tokens: list[int]) -> None:
        """Raise BadReply if `tokens`, from `position` on, exceed the bounds."""
        if tokens and max(tokens) >= self.ids:
            raise broken_promise(self.url + path, f"a token is {max(tokens)}, and the vocabulary has {self.ids} ids")
        end = position + len(tokens)
        if end > self.tokens:
            raise broken_promise(self.url + path, f"the text has {end} tokens, at most {self.tokens} were asked for")
