"""The requests and responses of the router's own endpoints, and the file of its nodes: a table `[[nodes]]` for each."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError

from gateway.router.connections import node_url
from specpair.command_line.layers import KnownKeys
from specpair.command_line.setting_values import SettingsError
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
    """A node's entry in the list, in the file, or in its registration."""

    url: str  # one spelling: see `node_url`
    model: str | None = None  # the only one that it may serve; None: any
    weight: float = 1.0
    hourly_price: float | None = None


class ListedNode(KnownKeys):
    """A node, as a file lists it."""

    model_config = ConfigDict(allow_inf_nan=False)
    url: NodeUrl = Field(description="Where the router reaches it.")
    model: str | None = Field(None, description="The only model that it may serve here.")
    weight: Weight = 1.0
    hourly_price: HourlyPrice | None = None

    @property
    def spec(self) -> NodeSpec:
        return NodeSpec(self.url, self.model, self.weight, self.hourly_price)


class NodeRequest(RequestModel, ListedNode):
    """A node that registers, or reports that it is still there."""

    ttl: float | None = Field(
        15.0, gt=0, le=86_400, description="Seconds after which it leaves unless it reports again; null: it stays."
    )


class Latency(Response):
    """Times of the last requests, to the begin of the reply."""

    p50: Milliseconds = Field(description="The median.")
    p95: Milliseconds = Field(description="The 95th percentile.")


class NodeInfo(Response):
    """A node."""

    url: Name = Field(description="Where the router reaches it.")
    status: ServiceStatus | Literal["unknown", "away", "refused"] = Field(
        description="unknown: not looked at yet. away: it does not answer. refused: `why` says why."
    )
    why: Name | None = Field(None, description="Why it gets no texts.")
    kind: Literal["verifier", "drafter"] | None = Field(None, description="What it is, when known.")
    model: Name | None = Field(None, description="What it serves, when known.")
    identity: Identity | None = None
    vocabulary_size: Count | None = Field(None, description="Token ids of a verifier.")
    slots: Count | None = Field(None, description="KV slots of a verifier.")
    weight: Weight
    hourly_price: HourlyPrice | None = None
    leaves_in: Amount | None = Field(None, description="Seconds until it leaves if it does not report; null: it stays.")
    sessions: Count | None = Field(None, description="Sessions that it holds, as it told.")
    texts: Count = Field(description="Texts under way: as it told, and those sent there since.")
    waiting: Count = Field(description="Requests that wait there for a pass, as it told.")
    in_flight: Count = Field(description="Requests of this router that it has not replied to.")
    requests: Requests
    failures: Failures
    latency_ms: Latency | None = None
    round_trip_ms: Milliseconds | None = Field(None, description="The shortest of the last looks.")
    looked_ago: Amount | None = Field(None, description="Seconds since the last look while it was ready.")
    named_sessions: Count | None = Field(
        None, description="Of the sessions that the request names, those that are there; null: it names none."
    )
    generated_tokens: Generated
    pass_seconds: Amount | None = Field(None, description="Seconds of forward passes since its start, as it told.")
    tokens_per_second: Pace = None
    price_per_million_tokens: Price = None


class NodesResponse(Response):
    """All nodes."""

    nodes: list[NodeInfo] = Field(description="In the order in which they came.")


class ModelStats(Response):
    """The nodes of one model together."""

    model: Name = Field(description="Its name.")
    nodes: Count = Field(description="Those that serve it, or did.")
    ready: Count = Field(description="Those that take new texts.")
    texts: Count = Field(description="Texts under way.")
    requests: Requests
    failures: Failures
    latency_ms: Latency | None = None
    generated_tokens: Generated
    tokens_per_second: Pace = None
    price_per_million_tokens: Price = None


class StatsResponse(Response):
    """The router's work since its start."""

    policy: Name = Field(description="Which node a new text goes to.")
    sessions: Count = Field(description="Sessions whose node it remembers.")
    repeated: Count = Field(description="Requests that it has sent to a further node.")
    models: list[ModelStats] = Field(description="One for each model.")


class LeftResponse(Response):
    """A node has left."""

    url: Name = Field(description="Where it was.")
    left: Literal[True] = Field(description="A node that is not known is an error instead.")


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
        raise SettingsError(f"{path}: {twice} is listed twice: remove one")
    return nodes
