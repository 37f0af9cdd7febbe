"""The keys of `connections`: how far drafters are from verifiers."""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from lab.simulator.configuration.keys import File, Keys, Mistake, NonNegative, Positive
from lab.simulator.virtual.recorded_delays import Drawn, Replayed, read_delays
from specpair.command_line.suggestion import advice

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
_VALUES = (*Link._fields, "delays_path")  # what an entry may replace


def _known(link: str) -> str:
    if link not in LINKS:
        raise ValueError(f"no link {link!r}{advice(link, LINKS)}")
    return link


class Connection(Keys):
    """The link between each drafter of a kind and each verifier of a kind."""

    drafters: str = ALL
    """a kind of drafters, or `*` for all"""
    verifiers: str = ALL
    """a kind of verifiers, or `*` for all"""
    link: Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": [*LINKS]})] | None = None
    """a link by name, of which the keys below replace single values; null: they replace values of what counts without
    this entry, which is the entry before it that fits, or the topology"""
    rtt_ms: NonNegative | None = None
    """of a short message and its answer, without jitter"""
    jitter_ms: NonNegative | None = None
    """mean of the random delay that is added to each message"""
    loss: Annotated[float, Field(ge=0, lt=1)] | None = None
    """share of messages that are lost and sent again"""
    bandwidth_mbps: Positive | None = None
    """million bits a second"""
    delays_path: File | None = None
    """recorded round trips in ms, one a line, or the output of `ping`; in place of `rtt_ms` and `jitter_ms`"""

    @model_validator(mode="after")
    def _is_one(self) -> "Connection":
        if self.delays_path is not None and (self.rtt_ms is not None or self.jitter_ms is not None):
            raise Mistake("recorded delays leave no place for rtt_ms and jitter_ms", "delays_path")
        self.recorded()  # raises BadDelays, a ValueError
        return self

    def recorded(self) -> Drawn | Replayed | None:
        """The recorded round trips; None: there are none. Raises BadDelays for a file that has none."""
        return None if self.delays_path is None else read_delays(self.delays_path)

    def over(self, before: "Connection") -> "Connection":
        """What counts for two kinds for which this one fits and, without it, `before` counts."""
        if self.link is not None:
            return self
        mine = {name: value for name in _VALUES if (value := getattr(self, name)) is not None}
        replaced: dict[str, None] = {}
        if self.delays_path is not None:
            replaced = dict.fromkeys(["rtt_ms", "jitter_ms"])
        elif {"rtt_ms", "jitter_ms"} & mine.keys():
            replaced = {"delays_path": None}
        return before.model_copy(update=replaced | mine)

    def built(self) -> Link:
        """The link by name, with the values that replace its own."""
        given = {name: getattr(self, name) for name in Link._fields}
        return LINKS[self.link or _NEAREST]._replace(
            **{name: value for name, value in given.items() if value is not None}
        )


def between(connections: Sequence[Connection], drafters: str, verifiers: str) -> Connection:
    """The last of the connections that is for these two kinds, over those before it; without one, a link within a
    site."""
    found = Connection(link=_NEAREST)
    for each in connections:
        if each.drafters in (ALL, drafters) and each.verifiers in (ALL, verifiers):
            found = each.over(found)
    return found


def _sites(drafters: Sequence[str], verifiers: Sequence[str]) -> list[Connection]:
    pairs = zip(drafters, verifiers, strict=False)
    return [Connection(link="wan"), *(Connection(drafters=one, verifiers=other, link=_NEAREST) for one, other in pairs)]


def _edge(drafters: Sequence[str], verifiers: Sequence[str]) -> list[Connection]:
    return [Connection(link="wan"), Connection(verifiers=verifiers[0], link="metro")]


def _everywhere(link: str) -> Callable[[Sequence[str], Sequence[str]], list[Connection]]:
    return lambda drafters, verifiers: [Connection(link=link)]


# By name, the connections between kinds of drafters and kinds of verifiers, each in the order of the file.
TOPOLOGIES: dict[str, Callable[[Sequence[str], Sequence[str]], list[Connection]]] = {
    **{link: _everywhere(link) for link in LINKS},
    "sites": _sites,  # the first kinds of both share a site, so do the second ones, …; between sites it is far
    "edge": _edge,  # the first kind of verifiers is near all drafters, the others are far
}


def _known_topology(name: str) -> str:
    if name not in TOPOLOGIES:
        raise ValueError(f"no topology {name!r}{advice(name, TOPOLOGIES)}")
    return name


Topology = Annotated[str, AfterValidator(_known_topology), Field(json_schema_extra={"enum": [*TOPOLOGIES]})]
