"""What is told of the network: the data of the event `network` of `GET /events`."""

from typing import Annotated, Literal

from pydantic import Field

from specpair.http_service.replies.events import EventMessage
from specpair.protocol.service_responses import ServiceStatus

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
    price_per_million_tokens: Annotated[float | None, Field(description="Where a price was given.")] = None


class NetworkLink(EventMessage):
    """A connection that is kept between two nodes."""

    near: Annotated[str, Field(description="The name of the node that asks.")]
    far: Annotated[str, Field(description="The name of the node that answers.")]
    round_trip_ms: Annotated[
        float | None, Field(description="Of requests to `/health`, the shortest of the last five; null: none yet.")
    ] = None
    age_s: Annotated[float | None, Field(description="Seconds since the last of them.")] = None


class Network(EventMessage):
    """All that is known of the network."""

    nodes: Annotated[list[NetworkNode], Field(description="This service first, then by distance.")]
    links: Annotated[list[NetworkLink], Field(description="From the near node to the far one.")]
    generated_tokens: Annotated[int, Field(description="Of the texts of this service, since its start.")]
    price_per_million_tokens: Annotated[
        float | None, Field(description="Of the verifiers that have a price, on average over their tokens.")
    ] = None
    cost: Annotated[float | None, Field(description="Of these tokens at this price.")] = None
