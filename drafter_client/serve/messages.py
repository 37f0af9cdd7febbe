"""Event payloads of `GET /events`: the state of a pair, and the network around it. Times are in milliseconds."""

from typing import Annotated, Literal

from pydantic import Field

from specpair.http_service.replies.events import EventMessage
from specpair.protocol.service_responses import ServiceStatus

TextNumber = Annotated[int, Field(description="Which text, counted from 1 since the service began.")]
Clock = Annotated[
    float, Field(description="When, in milliseconds on the clock of the service, whose zero is arbitrary.")
]


class MeasuredRate(EventMessage):
    """The measured speed of texts in a mode."""

    tokens_per_second: Annotated[float, Field(description="Tokens a second.")]
    remembered: Annotated[bool, Field(description="Whether that was in an earlier run.")]


class PairState(EventMessage):
    """The service, and whether it can generate: the first event, sent again after each change."""

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
    """Progress of a text. The counts are those of the readout, from its start."""

    text: TextNumber
    at_ms: Clock
    mode: Annotated[str, Field(description="The mode that writes it now: target, remote or fused.")]
    generated: Annotated[int, Field(description="Tokens.")]
    rounds: Annotated[int, Field(description="Rounds.")]
    drafted: Annotated[int, Field(description="Draft tokens that the target judged.")]
    accepted: Annotated[int, Field(description="Of these, those accepted.")]


class PairRound(EventMessage):
    """A verified draft, and the work of both machines for it."""

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


NodeStatus = ServiceStatus | Literal["unknown", "away", "refused"]


class NetworkNode(EventMessage):
    """A machine, or the service on it."""

    name: Annotated[str, Field(description="`drafter`: this service. Of others, the address.")]
    kind: Annotated[Literal["drafter", "router", "verifier"], Field(description="What it is.")]
    status: Annotated[
        NodeStatus,
        Field(description="As `/health` says it. unknown: not looked at yet; away: no answer; refused: not taken."),
    ]
    why: Annotated[str | None, Field(description="What is wrong with it.")] = None
    progress: Annotated[float | None, Field(description="Share of its model that is loaded, while it loads.")] = None
    model: Annotated[str | None, Field(description="The target; of a drafter, its draft model.")] = None
    slots: Annotated[int | None, Field(description="KV slots of a verifier.")] = None
    texts: Annotated[int | None, Field(description="Texts under way there, those of others included.")] = None
    waiting: Annotated[int | None, Field(description="Requests that wait there for a pass; of a drafter, texts.")] = (
        None
    )
    own_texts: Annotated[int | None, Field(description="Texts of this service that are under way there.")] = None
    tokens_per_second: Annotated[float | None, Field(description="Generated between the last two looks.")] = None
    utilisation: Annotated[
        float | None, Field(description="Share of that time in which a verifier ran forward passes, 0 to 1.")
    ] = None


class NetworkLink(EventMessage):
    """A connection that is kept between two nodes."""

    near: Annotated[str, Field(description="The name of the node that asks.")]
    far: Annotated[str, Field(description="The name of the node that answers.")]
    round_trip_ms: Annotated[
        float | None, Field(description="Of requests to `/health`, the shortest of the last five; null: none yet.")
    ] = None
    age_s: Annotated[float | None, Field(description="Seconds since the last of them.")] = None


class Network(EventMessage):
    """The network's nodes and links."""

    nodes: Annotated[list[NetworkNode], Field(description="This service first, then by distance.")]
    links: Annotated[list[NetworkLink], Field(description="From the near node to the far one.")]
    generated_tokens: Annotated[int, Field(description="Of the texts of this service, since its start.")]
