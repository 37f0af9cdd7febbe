"""What a verifier answers, as types. Reading one raises BadReply for what no verifier says."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backends.vocabulary import Fingerprint
from drafter_client.http.fields import Fields, broken_promise
from speculation.acceptance.decisions import VERDICTS, Decision

STREAM = "/sessions/…/stream"  # in messages, whatever the session


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the verifier serves."""

    name: str
    context_length: int
    max_drafts: int
    pass_ms: list[float]  # what a pass over 1, 2, … tokens takes it; may be empty
    self_continue: bool  # whether it can go on by itself
    vocabulary: Fingerprint
    chat_template: str | None
    modes: tuple[str, ...] = ("target",)  # in which it writes texts by itself
    draft_model: str | None = None  # what drafts there, in mode fused
    draft_pass_ms: float | None = None  # what a step of it takes
    engine: str | None = None  # that runs the target

    @classmethod
    def read(cls, reply: Fields, below: int | None) -> "ModelInfo":
        """`below`: of how many ids fingerprints were asked for."""
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
    """Those on `tokens`, where the reply tells them."""
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
    """A session after its prefill: the prompt's ids, and the tokens behind those that were known, at least one unless
    the text has ended."""

    session_id: str
    prompt_ids: list[int]
    tokens: list[int]
    finish_reason: str | None
    sampling: dict[str, Any]
    queue_ms: float
    forward_ms: float
    decisions: list[Decision] | None = None  # on each of `tokens`, where asked for

    @classmethod
    def read(
        cls, reply: Fields, session_id: str, prompt_ids: list[int], known: Sequence[int] = ()
    ) -> "PrefillResponse":
        """Id and prompt are what was sent: what comes back of them belongs nowhere unchecked. So do the `known` tokens,
        behind which those of the reply stand."""
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
    """Answer to a guess: committed tokens from its position on, and where the time went on the server.

    At least one token, until the text has ended.
    """

    accepted: int
    judged: int
    tokens: list[int]
    finish_reason: str | None
    queue_ms: float
    forward_ms: float
    sessions: int = 1  # that shared the pass
    decisions: list[Decision] | None = None  # on each of `tokens`, where asked for
    unjudged: int = 0  # drafts at the end for which the session's credit did not suffice

    @property
    def ran(self) -> bool:
        """Whether the model ran for this guess: not for one that is out of date, nor for one that a longer contains."""
        return self.judged > 0 or self.forward_ms > 0.0

    def recorded(self, drafts: int) -> int:
        """How many of the tokens had been committed without this guess, of so many drafts: all, if it never ran.

        The drafts judged are the last ones but those unjudged, since none is sent for places beyond the target's last
        token.
        """
        if self.judged:
            return drafts - self.unjudged - self.judged
        return len(self.tokens) - self.ran

    def stood(self, drafts: int) -> int:
        """Of those judged, how many stood; `drafts` were guessed, and what was known of them was not judged again.

        Behind them the target's own token may equal a draft that was not judged.
        """
        return min(max(0, self.accepted - self.recorded(drafts)), self.judged)

    @classmethod
    def read(cls, reply: Fields, drafts: int) -> "VerifyResponse":
        """`drafts`: how many were guessed."""
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
    """An event of the stream: committed tokens, at least one. `own`: by the verifier itself, no guess being there."""

    position: int
    tokens: list[int]
    own: bool
    forward_ms: float | None  # of the pass that brought the last of them, where it was its own
    decisions: list[Decision] | None = None  # on each of them, where asked for

    @classmethod
    def read(cls, event: Fields, due: int) -> "StreamedTokens":
        """`due`: the position up to which the stream has told all."""
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
    """The last event of a text that the verifier wrote by itself."""

    finish_reason: str
    sampling: dict[str, Any]
    queue_ms: float
    forward_ms: float
    speculation: "Speculation | None"  # where it drafted, too

    @property
    def milliseconds(self) -> float:
        """All that the verifier accounts for."""
        drafting = 0.0 if self.speculation is None else self.speculation.drafting_ms
        return self.queue_ms + self.forward_ms + drafting

    @classmethod
    def read(cls, event: Fields, streamed: list[int]) -> "GenerateResponse":
        """`streamed`: the tokens of the events before it, and those that were known before."""
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
    """What drafting on the verifier's side came to, beside what its events have told."""

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
    """What a text keeps to: token ids below `ids`, and no more of them than `tokens`, the prompt's included."""

    url: str
    ids: int
    tokens: int
    ends: frozenset[int] = frozenset()  # ids behind which there is nothing

    def finish_reason(self, text: list[int]) -> str | None:
        """Why a text, its prompt included, cannot go on; None: it can."""
        if text[-1] in self.ends:
            return "stop"
        return "length" if len(text) >= self.tokens else None

    def check_explained(self, path: str, asked: bool, decisions: list[Decision] | None) -> None:
        """Raise BadReply where the reasons for tokens were asked for and do not come."""
        if asked and decisions is None:
            raise broken_promise(self.url + path, "decisions are missing, and were asked for")

    def check(self, path: str, position: int, tokens: list[int]) -> None:
        """Raise BadReply for tokens from `position` on that go beyond."""
        if tokens and max(tokens) >= self.ids:
            raise broken_promise(self.url + path, f"a token is {max(tokens)}, and the vocabulary has {self.ids} ids")
        if position + len(tokens) > self.tokens:
            end = position + len(tokens)
            raise broken_promise(self.url + path, f"the text has {end} tokens, at most {self.tokens} were asked for")
