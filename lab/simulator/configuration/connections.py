"""The keys of `connections`: how far drafters are from verifiers."""

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from lab.simulator.configuration.keys import MS, File, Keys, Mistake, NonNegative, Positive
from lab.simulator.virtual.network import Network
from specpair.command_line.given_values import advice

ALL = "*"
_PING = re.compile(r"\btime[=<](\d+\.?\d*) ?ms\b")  # a line of the output of `ping`


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


class BadDelays(ValueError):
    """A file has no recorded delays. The message names the file, the line and what to do."""


def read_delays(path: Path) -> list[float]:
    """The round trips of a file, in seconds: one a line, in milliseconds, or as `ping` writes them. Raises BadDelays.

    Other lines of `ping` are passed over: a lost packet is the business of `loss`.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise BadDelays(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadDelays(f"{path} is not UTF-8 text") from None
    by_ping = any(map(_PING.search, lines))
    found: list[float] = []
    for number, line in enumerate(lines, 1):
        pinged = _PING.search(line)
        if not line.strip() or line.startswith("#") or (by_ping and pinged is None):
            continue
        text = pinged[1] if pinged is not None else line.strip()
        if re.fullmatch(r"\d+\.?\d*", text) is None:
            raise BadDelays(f"{path}, line {number}: {text[:60]!r} is no time: give milliseconds, one a line")
        found.append(float(text) * MS)
    if not found:
        raise BadDelays(f"{path} has no round trips: give one a line, in milliseconds")
    return found


def _known(link: str) -> str:
    if link not in LINKS:
        raise ValueError(f"no link {link!r}{advice(link, LINKS)}")
    return link


class ConnectionKeys(Keys):
    """The link between each drafter of a kind and each verifier of a kind."""

    drafters: str = ALL
    """a kind of drafters, or `*` for all"""
    verifiers: str = ALL
    """a kind of verifiers, or `*` for all"""
    link: Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": [*LINKS]})] | None = None
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
    delays_path: File | None = None
    """recorded round trips in ms, one a line, or the output of `ping`; in place of `rtt_ms` and `jitter_ms`"""

    @model_validator(mode="after")
    def _is_one(self) -> "ConnectionKeys":
        if self.delays_path is not None:
            if self.rtt_ms is not None or self.jitter_ms is not None:
                raise Mistake("recorded delays leave no place for rtt_ms and jitter_ms", "delays_path")
            read_delays(self.delays_path)  # raises BadDelays, a ValueError
        return self

    @property
    def values(self) -> dict[str, float]:
        """Those that it replaces."""
        given = {name: getattr(self, name) for name in Link._fields}
        return {name: value for name, value in given.items() if value is not None}


def between(connections: Sequence[ConnectionKeys], drafters: str, verifiers: str) -> tuple[Link, Path | None]:
    """The link between two kinds, and the file of its recorded round trips: each connection that fits replaces values
    of those before it. Without one it is a link within a site."""
    link, delays = LINKS[_NEAREST], None
    for each in connections:
        if each.drafters not in (ALL, drafters) or each.verifiers not in (ALL, verifiers):
            continue
        if each.link is not None:
            link, delays = LINKS[each.link], None
        link = link._replace(**each.values)
        if each.delays_path is not None:
            delays = each.delays_path
        elif {"rtt_ms", "jitter_ms"} & each.values.keys():
            delays = None
    return link, delays


def network_between(connections: Sequence[ConnectionKeys], drafters: str, verifiers: str) -> Network:
    """The same as the simulation takes it."""
    link, delays = between(connections, drafters, verifiers)
    bandwidth = link.bandwidth_mbps * 1e6 / 8
    if delays is not None:
        recorded = read_delays(delays)
        return Network(median(recorded), loss=link.loss, bandwidth=bandwidth, recorded=tuple(recorded))
    return Network(link.rtt_ms * MS, link.jitter_ms * MS, link.loss, bandwidth=bandwidth)
