"""What is told of a pair as it works: the data of the events of `GET /events`. Times are milliseconds."""

from typing import Annotated

from pydantic import Field

from specpair.http_service.replies.events import EventMessage
from specpair.protocol.service_responses import ServiceStatus

TextNumber = Annotated[int, Field(description="Which text, counted from 1 since the service began.")]
Clock = Annotated[
    float, Field(description="When, in milliseconds on the clock of the service, whose zero is arbitrary.")
]


class MeasuredRate(EventMessage):
    """How fast texts were written in a mode."""

    tokens_per_second: Annotated[float, Field(description="Tokens a second.")]
    remembered: Annotated[bool, Field(description="Whether that was in an earlier run.")]


class PairState(EventMessage):
    """What the service is, and whether it can generate: the first event, and again whenever it has changed."""

    status: Annotated[ServiceStatus, Field(description="As `/health` says it.")]
    reason: Annotated[str | None, Field(description="Why it is not ready, if that is known.")]
    model: Annotated[str, Field(description="The target.")]
    draft_model: Annotated[str, Field(description="The draft model; empty without one.")]
    texts: Annotated[int, Field(description="Texts under way.")]
    waiting: Annotated[int, Field(description="Texts that wait for a place.")]
    target_alone: Annotated[
        MeasuredRate | None,
        Field(description="What the target alone made, as mode auto measured it over this link; null: not measured."),
    ] = None


class TextCounts(EventMessage):
    """How far a text is. The counts are those of the readout, from its beginning on."""

    text: TextNumber
    at_ms: Clock
    mode: Annotated[str, Field(description="The mode that writes it now: target, remote or fused.")]
    generated: Annotated[int, Field(description="Tokens.")]
    rounds: Annotated[int, Field(description="Rounds.")]
    drafted: Annotated[int, Field(description="Draft tokens that the target judged.")]
    accepted: Annotated[int, Field(description="Of these, those accepted.")]


class PairRound(EventMessage):
    """An answer to a draft: what the two machines did for it."""

    text: TextNumber
    sent_ms: Clock
    arrived_ms: Clock
    drafting_ms: Annotated[float, Field(description="Draft steps since the draft before, beside other work or not.")]
    queue_ms: Annotated[float, Field(description="In the verifier's queue.")]
    forward_ms: Annotated[float, Field(description="In the verifier's pass; 0: it was answered without one.")]
    draft_tokens: Annotated[int, Field(description="Of the draft, those under way before included.")]
    judged: Annotated[int, Field(description="Of these, those that the target judged.")]
    schedule: Annotated[str, Field(description="As in the readout: lockstep, overlapped or self-continued.")]


class TextEnded(EventMessage):
    """The end of a text, or of a stretch of it."""

    text: TextNumber
    finish_reason: Annotated[str | None, Field(description="Null: it goes on, or ended early.")]
    why: Annotated[str, Field(description="In mode auto, the rates that the modes were chosen by; else empty.")]
