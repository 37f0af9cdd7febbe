"""Chooses the node of a text: rendezvous hashing orders the nodes by the text's key, and a policy chooses.

Pure: the module neither measures nor waits, so a simulator can run the same code. A policy is found by its name or as
`module:Class`. It gets the nodes that can take the text, in the rendezvous order of the text's key. This order is
random: its first two nodes are a random pair, and a node with twice the weight comes first twice as often. All routers
find the same order, so a router that has not seen the text begin knows where to look for the text.
"""

import hashlib
import math
import random
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol, TypeVar

from specpair.plugins import class_at


@dataclass(frozen=True, slots=True)
class NewText:
    """A new text, with its known properties."""

    key: str = ""  # tells it from the others
    # Keys of what its prompt begins with, the longest first; equal ones share a KV cache.
    prefixes: tuple[str, ...] = ()
    tokens: float = 1.0  # that it is expected to get; 1 where that is not known, so that texts are counted
    deadline: float = math.inf  # seconds in which each of its drafts should be judged


class Candidate(Protocol):
    """A node that takes texts, and how busy it is. Times are in seconds."""

    @property
    def name(self) -> str:
        """Unique name of the node."""

    @property
    def weight(self) -> float:
        """Relative number of texts that it can take; above 0."""

    @property
    def queue(self) -> int:
        """Texts under way, and requests that wait for a pass."""

    @property
    def queue_time(self) -> float:
        """Until the node verifies a draft of one more text: see `queue_time`."""

    @property
    def work(self) -> float:
        """Expected remaining tokens of its texts, as `NewText.tokens` counts them."""

    @property
    def deadline(self) -> float:
        """The shortest of its texts' deadlines; infinite where none is known."""


def queue_time(link: float, pass_times: Sequence[float], slots: int, texts: int, waiting: int) -> float:
    """Seconds until a draft of one more text is verified: the round trip, the passes of waiting requests, and the
    draft's, over a token of each text. Texts beyond the slots take turns.

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


_ABOUT = 1.1  # queue times that differ less are the same: they are estimates
_OVERLOADED = 2.0  # so many times the least load: sharing a prefix does not make up for it
_MOST_PREFIXES = 65_536  # that are remembered


class Policy(ABC):
    """A policy, used by one thread. Custom policies inherit from it, with no arguments of `__init__`."""

    reads_prompts: ClassVar[bool] = False  # whether it looks at `NewText.prefixes`: else a router reads no prompts

    @abstractmethod
    def choose(self, order: Sequence[C], text: NewText) -> C:
        """Choose the node of a new text. `order`: nodes that can take it, at least one, in its key's order."""


class LeastCost(Policy):
    """Chooses the cheapest node of the first `among` in the order (None: of all)."""

    def __init__(self, cost: Callable[[Candidate, NewText], float], among: int | None = None) -> None:
        self._cost, self._among = cost, among

    def choose(self, order: Sequence[C], text: NewText) -> C:
        return min(order[: self._among], key=lambda each: self._cost(each, text))


def _queue(node: Candidate, text: NewText) -> float:
    return node.queue


def _load(node: Candidate, text: NewText) -> float:
    """The queue by weight of a node that gets one more text."""
    return (node.queue + 1) / node.weight


def _work(node: Candidate, text: NewText) -> float:
    """The expected work by weight, this text included. With good estimates it beats the shortest queue."""
    return (node.work + text.tokens) / node.weight


class Random(Policy):
    """Any of the nodes by the text's key alone, whatever load and weight."""

    def choose(self, order: Sequence[C], text: NewText) -> C:
        return random.Random(text.key).choice(sorted(order, key=lambda each: each.name))


class RoundRobin(Policy):
    """Each node in its turn, by name."""

    def __init__(self) -> None:
        self._last = ""

    def choose(self, order: Sequence[C], text: NewText) -> C:
        by_name = sorted(order, key=lambda each: each.name)
        chosen = next((each for each in by_name if each.name > self._last), by_name[0])
        self._last = chosen.name
        return chosen


class Jiq(Policy):
    """The node that has been idle longest, else the first of the order (Lu et al., "Join-Idle-Queue", 2011).

    A node counts as idle from the first text before which it was seen to be."""

    def __init__(self) -> None:
        self._idle: list[str] = []  # names, the longest idle first

    def choose(self, order: Sequence[C], text: NewText) -> C:
        idle = {each.name: each for each in order if each.queue == 0}
        self._idle = [*dict.fromkeys([*(name for name in self._idle if name in idle), *idle])]
        return idle[self._idle.pop(0)] if self._idle else order[0]


class LeastQueueTime(Policy):
    """Among the nodes whose queue time is about the shortest, chooses the node with the shortest queue by weight."""

    def choose(self, order: Sequence[C], text: NewText) -> C:
        soonest = min(each.queue_time for each in order)
        near = [each for each in order if each.queue_time <= _ABOUT * soonest]
        return min(near, key=lambda each: each.queue / each.weight)


class PrefixAware(Policy):
    """Chooses the node that last began a text with the longest known prefix, unless its load is twice that of the node
    that `wjsq2` chooses. Then, and for a text whose prefixes are all new, `wjsq2` chooses."""

    reads_prompts = True

    def __init__(self) -> None:
        self._nodes: OrderedDict[str, str] = OrderedDict()  # names by prefix, the latest last
        self._otherwise = LeastCost(_load, 2)

    def choose(self, order: Sequence[C], text: NewText) -> C:
        chosen = self._otherwise.choose(order, text)
        there = {each.name: each for each in order}
        having = (there.get(self._nodes.get(prefix, "")) for prefix in text.prefixes)
        warm = next((each for each in having if each is not None), chosen)
        if _load(warm, text) <= _OVERLOADED * _load(chosen, text):
            chosen = warm
        for prefix in text.prefixes:
            self._nodes[prefix] = chosen.name
            self._nodes.move_to_end(prefix)
        while len(self._nodes) > _MOST_PREFIXES:
            self._nodes.popitem(last=False)
        return chosen


class SloAware(Policy):
    """Chooses the node where deadlines are most likely kept: where the queue time is the smallest part of the shortest
    deadline, of the text or of the node's texts. Without deadlines, the node with the least queue time.
    (WISP, arXiv 2601.11652, forms batches by the time left until each deadline; this policy chooses nodes so.)"""

    def choose(self, order: Sequence[C], text: NewText) -> C:
        def strained(each: Candidate) -> tuple[float, float]:
            return each.queue_time / min(text.deadline, each.deadline), each.queue_time

        return min(order, key=strained)


POLICIES: Mapping[str, Callable[[], Policy]] = {
    "hash": partial(LeastCost, _queue, 1),  # the first of the order, whatever the load
    "random": Random,
    "round_robin": RoundRobin,
    "jsq": partial(LeastCost, _queue),  # join the shortest queue, whatever the weights
    # Power of two choices: Mitzenmacher, "The power of two choices in randomized load balancing", 2001.
    "jsq2": partial(LeastCost, _queue, 2),
    "wjsq": partial(LeastCost, _load),
    "wjsq2": partial(LeastCost, _load, 2),
    "jiq": Jiq,
    "least_queue_time": LeastQueueTime,
    "prefix_aware": PrefixAware,
}
# These need what no request says: expected lengths, and deadlines. A simulator knows them.
INFORMED: Mapping[str, Callable[[], Policy]] = {
    "semi_clairvoyant": partial(LeastCost, _work),
    "slo_aware": SloAware,
}
KNOWN = {**POLICIES, **INFORMED}
DEFAULT = "wjsq"  # of a router that is told no policy
LOOK_EVERY = 1.0  # seconds between two looks of such a router at each node


def policy_of(name: str) -> Callable[[], Policy]:
    """The class of the policy `name`. Imports the module of a custom policy.

    Raises ValueError, which says what is wrong with the name or with the module.
    """
    if name not in KNOWN and ":" not in name:
        raise ValueError(f"no policy {name!r}: choose one of {', '.join(KNOWN)}, or your own as module:Class")
    return KNOWN.get(name) or class_at(name, Policy)  # type: ignore[type-abstract]


def check_policy(name: str) -> None:
    """Make the policy `name` once. Raises ValueError, which says what is wrong."""
    make = policy_of(name)
    try:
        make()
    except Exception as error:
        raise ValueError(f"the policy {name} cannot be made: {type(error).__name__}: {error}") from error
