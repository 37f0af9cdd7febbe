"""The requests and responses of the router's own endpoints, and the file of its nodes: a table `[[nodes]]` for each."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from gateway.router.connections import node_url
from specpair.command_line.given_values import SettingsError
from specpair.command_line.known_keys import KnownKeys
from specpair.protocol.messages import RequestModel
from specpair.protocol.response_fields import Count, Identity, Milliseconds, Name, Response
from specpair.protocol.service_responses import ServiceStatus

NodeUrl = Annotated[str, Field(max_length=500), AfterValidator(node_url)]
Weight = Annotated[float, Field(gt=0, le=1e6, description="How many texts it can take in relation to others.")]
HourlyPrice = Annotated[float, Field(ge=0, le=1e9, description="What an hour of it costs, in any currency.")]
Amount = Annotated[float, Field(ge=0)]
Requests = Annotated[Count, Field(description="Requests that were sent there.")]
Failures = Annotated[Count, Field(description="Requests whose connection broke, or was not made.")]
Generated = Annotated[Count, Field(description="Tokens generated there since this router has known it.")]
Pace = Annotated[Amount | None, Field(description="On average since then, idle time included.")]
Price = Annotated[
    Amount | None, Field(description="What a million tokens have cost since then: the hours that were paid, by tokens.")
]


@dataclass(frozen=True)
class NodeSpec:
    """What somebody says of a node: the list, the file, or the node itself."""

    url: str  # one spelling: see `node_url`
    model: str | None = None  # the only one that it may serve; None: any
    weight: float = 1.0
    hourly_price: float | None = None


class ListedNode(KnownKeys):
    """A node, as a file lists it."""

    model_config = ConfigDict(allow_inf_nan=False)
    url: Annotated[NodeUrl, Field(description="Where the router reaches it.")]
    model: Annotated[str | None, Field(description="The only model that it may serve here.")] = None
    weight: Weight = 1.0
    hourly_price: HourlyPrice | None = None

    @property
    def spec(self) -> NodeSpec:
        return NodeSpec(self.url, self.model, self.weight, self.hourly_price)


class NodeRequest(RequestModel, ListedNode):
    """A node that registers, or reports that it is still there."""

    ttl: Annotated[
        float | None,
        Field(gt=0, le=86_400, description="Seconds after which it leaves unless it reports again; null: it stays."),
    ] = 15.0


class Latency(Response):
    """Times of the last requests, to the begin of the reply."""

    p50: Annotated[Milliseconds, Field(description="The median.")]
    p95: Annotated[Milliseconds, Field(description="The 95th percentile.")]


class NodeInfo(Response):
    """A node."""

    url: Annotated[Name, Field(description="Where the router reaches it.")]
    status: Annotated[
        ServiceStatus | Literal["unknown", "away", "refused"],
        Field(description="unknown: not looked at yet. away: it does not answer. refused: `why` says why."),
    ]
    why: Annotated[Name | None, Field(description="Why it gets no texts.")] = None
    kind: Annotated[Literal["verifier", "drafter"] | None, Field(description="What it is, when known.")] = None
    model: Annotated[Name | None, Field(description="What it serves, when known.")] = None
    identity: Identity | None = None
    vocabulary_size: Annotated[Count | None, Field(description="Token ids of a verifier.")] = None
    slots: Annotated[Count | None, Field(description="KV slots of a verifier.")] = None
    weight: Weight
    hourly_price: HourlyPrice | None = None
    leaves_in: Annotated[
        Amount | None, Field(description="Seconds until it leaves unless it reports again; null: it stays.")
    ] = None
    sessions: Annotated[Count | None, Field(description="Sessions that it holds, as it told.")] = None
    texts: Annotated[Count, Field(description="Texts under way: as it told, and those sent there since.")]
    waiting: Annotated[Count, Field(description="Requests that wait there for a pass, as it told.")]
    in_flight: Annotated[Count, Field(description="Requests of this router that it has not replied to.")]
    requests: Requests
    failures: Failures
    latency_ms: Latency | None = None
    round_trip_ms: Annotated[Milliseconds | None, Field(description="The shortest of the last looks.")] = None
    looked_ago: Annotated[Amount | None, Field(description="Seconds since the last look while it was ready.")] = None
    named_sessions: Annotated[
        Count | None,
        Field(description="Of the sessions that the request names, those that are there; null: it names none."),
    ] = None
    generated_tokens: Generated
    pass_seconds: Annotated[
        Amount | None, Field(description="Seconds of forward passes since a verifier's start, as it told.")
    ] = None
    tokens_per_second: Pace = None
    price_per_million_tokens: Price = None


class NodesResponse(Response):
    """All nodes."""

    nodes: Annotated[list[NodeInfo], Field(description="In the order in which they came.")]


class ModelStats(Response):
    """The nodes of one model together."""

    model: Annotated[Name, Field(description="Its name.")]
    nodes: Annotated[Count, Field(description="Those that serve it, or did.")]
    ready: Annotated[Count, Field(description="Those that take new texts.")]
    texts: Annotated[Count, Field(description="Texts under way.")]
    requests: Requests
    failures: Failures
    latency_ms: Latency | None = None
    generated_tokens: Generated
    tokens_per_second: Pace = None
    price_per_million_tokens: Price = None


class StatsResponse(Response):
    """What the router has done since its start."""

    policy: Annotated[Name, Field(description="Which node a new text goes to.")]
    sessions: Annotated[Count, Field(description="Sessions whose node it remembers.")]
    repeated: Annotated[Count, Field(description="Requests that it has sent to a further node.")]
    models: Annotated[list[ModelStats], Field(description="One for each model.")]


class LeftResponse(Response):
    """A node has left."""

    url: Annotated[Name, Field(description="Where it was.")]
    left: Annotated[Literal[True], Field(description="A node that is not known is an error instead.")]


class _File(KnownKeys):
    nodes: list[ListedNode] = Field(default_factory=list)


def read_nodes(path: Path) -> list[NodeSpec]:
    """The nodes in a file. Raises SettingsError, which names what is wrong in it."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from None
    try:
        nodes = [each.spec for each in _File.model_validate(content).nodes]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{path}: {where + ': ' if where else ''}{message}") from None
    urls = [each.url for each in nodes]
    if twice := next((url for url in urls if urls.count(url) > 1), None):
        raise SettingsError(f"{path}: {twice} is there twice: leave one out")
    return nodes
