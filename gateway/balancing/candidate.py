"""What a choice between nodes looks at, and the order in which each text's key puts them."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar


@dataclass(frozen=True, slots=True)
class NewText:
    """A text that begins, as far as is known."""

    key: str = ""  # tells it from the others
    prefixes: tuple[
        str, ...
    ] = ()  # keys of what its prompt begins with, the longest first; equal ones share a KV cache
    tokens: float = 1.0  # that it is expected to get; 1 where that is not known, so that texts are counted
    deadline: float = math.inf  # seconds in which each of its drafts should be judged


class Candidate(Protocol):
    """A node that takes texts, and how busy it is. Times are in seconds."""

    @property
    def name(self) -> str:
        """Tells it from the others."""

    @property
    def weight(self) -> float:
        """How many texts it can take in relation to others; above 0."""

    @property
    def queue(self) -> int:
        """Texts under way there, and requests that wait for a pass."""

    @property
    def queue_time(self) -> float:
        """Until a draft of one more text would be judged there: see `queue_time`."""

    @property
    def work(self) -> float:
        """Tokens that its texts are still expected to get, each as `NewText.tokens` counts it."""

    @property
    def deadline(self) -> float:
        """The shortest of its texts' deadlines; infinite where none is known."""


def queue_time(link: float, pass_times: Sequence[float], slots: int, texts: int, waiting: int) -> float:
    """Seconds until a draft of one more text is judged: the round trip, the passes for which others wait, and its own
    pass, over a token of each text. Texts beyond the slots take turns.

    `link`: the round trip.
    `pass_times`: of passes over 1, 2, … tokens; empty: they are not known, and count as nothing.
    `slots`: texts that can share a pass, at least 1.
    `texts`: under way, without the one more.
    `waiting`: requests that wait for a pass.
    """
    if not pass_times:
        return link
    width = texts + 1
    together = min(len(pass_times), slots)
    took = pass_times[min(width, together) - 1] * max(1.0, width / together)
    return link + took * (1.0 + waiting / width)


C = TypeVar("C", bound=Candidate)
_BITS = 53  # of the hash: as many as a float holds


def ordered(key: str, nodes: Iterable[C]) -> list[C]:
    """The nodes in the order of the key. Two processes with the same nodes find the same order."""
    keyed = hashlib.blake2b(key.encode(), digest_size=8, person=b"specpair-node")
    drawn = [(_variate(keyed, each), each.name, each) for each in nodes]
    return [node for *_, node in sorted(drawn, key=lambda each: each[:2])]


def _variate(keyed: "hashlib.blake2b", node: Candidate) -> float:
    hashed = keyed.copy()
    hashed.update(b"\0" + node.name.encode())
    drawn = int.from_bytes(hashed.digest(), "big") >> (64 - _BITS)
    return -math.log((drawn + 0.5) / 2**_BITS) / node.weight
