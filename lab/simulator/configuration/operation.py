"""The keys of a fleet's operation: its links, its objectives, its prices."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from lab.simulator.configuration.keys import MS, Keys, NonNegative, Positive
from lab.simulator.virtual.network import Network
from specpair.command_line.setting_values import advice


class SloKeys(Keys):
    """The users' service level objective. A request attains it if it keeps all bounds; null: no bound."""

    ttft_ms: Positive | None = None
    """from a request to its first token, at most"""
    tpot_ms: Positive | None = None
    """from its first token to its last, for each further token, at most"""
    latency_ms: Positive | None = None
    """from a request to its last token, at most"""


class Prices(Keys):
    """The prices of a fleet. The unit of money is that of the prices."""

    per_hour: dict[str, NonNegative] = Field(default_factory=dict)
    """of one device, by kind; 0 for kinds that are left out"""
    watts: dict[str, NonNegative] = Field(default_factory=dict)
    """that one device takes, by kind"""
    per_kwh: NonNegative = 0.0
    """of energy"""


ALL = "*"


class Link(NamedTuple):
    """A link, the same both ways.

    `rtt_ms`: of a short message and its answer, without jitter.
    `jitter_ms`: mean of the random delay that is added to each message.
    `loss`: share of messages, 0 to 1, that are lost and sent again.
    `bandwidth_mbps`: million bits a second.
    """

    rtt_ms: float
    jitter_ms: float
    loss: float
    bandwidth_mbps: float


# Round values, assumed and not measured: what a link of each kind is about like.
LINKS = {
    "same_node": Link(0.1, 0.02, 0.0, 20_000.0),  # two processes of one machine, over loopback
    "same_site": Link(0.5, 0.1, 0.0, 1_000.0),  # wired, over a few switches of one building
    "metro": Link(10.0, 2.0, 0.001, 100.0),  # from a home or office to a data centre of the same city
    "wan": Link(80.0, 8.0, 0.002, 50.0),  # across a continent or an ocean
}
_NEAREST = "same_site"  # where nothing is said


def _known_link(link: str) -> str:
    if link not in LINKS:
        raise ValueError(f"no link {link!r}{advice(link, LINKS)}")
    return link


class ConnectionKeys(Keys):
    """The link between each drafter of a kind and each verifier of a kind."""

    drafters: str = ALL
    """a kind of drafters, or `*` for all"""
    verifiers: str = ALL
    """a kind of verifiers, or `*` for all"""
    link: Annotated[str, AfterValidator(_known_link), Field(json_schema_extra={"enum": [*LINKS]})] | None = None
    """a link by name, of which the keys below replace single values; null: they replace values of what counts without
    this entry, which is the entry before it that fits, or `same_site`"""
    rtt_ms: NonNegative | None = None
    """of a short message and its answer, without jitter"""
    jitter_ms: NonNegative | None = None
    """mean of the random delay that is added to each message"""
    loss: Annotated[float, Field(ge=0, lt=1)] | None = None
    """share of messages that are lost and sent again"""
    bandwidth_mbps: Positive | None = None
    """million bits a second"""

    @property
    def values(self) -> dict[str, float]:
        """The values that it replaces."""
        given = {name: getattr(self, name) for name in Link._fields}
        return {name: value for name, value in given.items() if value is not None}


def between(connections: Sequence[ConnectionKeys], drafters: str, verifiers: str) -> Link:
    """The link between two kinds: each matching connection replaces values of earlier ones. Without a match: a link
    within a site."""
    link = LINKS[_NEAREST]
    for each in connections:
        if each.drafters in (ALL, drafters) and each.verifiers in (ALL, verifiers):
            link = (link if each.link is None else LINKS[each.link])._replace(**each.values)
    return link


def network_between(connections: Sequence[ConnectionKeys], drafters: str, verifiers: str) -> Network:
    """The link as a `Network` of the simulation."""
    link = between(connections, drafters, verifiers)
    return Network(link.rtt_ms * MS, link.jitter_ms * MS, link.loss, bandwidth=link.bandwidth_mbps * 1e6 / 8)
