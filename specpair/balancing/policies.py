"""Policies: which node a new text goes to.

A policy gets the nodes that can take the text, in the rendezvous order of the text's key. That order is all the chance
that it needs: the first two nodes are two that were drawn at random, a node with twice the weight twice as often. And
they are the same two for every router, so a router that has not seen the text begin knows where to look for it.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from specpair.balancing.candidate import Candidate

C = TypeVar("C", bound=Candidate)
_ABOUT = 1.1  # queue times that differ less are the same: they are estimates


class Policy(Protocol):
    """A policy. Used by one thread."""

    def choose(self, order: Sequence[C]) -> C:
        """Choose the node of a new text. `order`: those that can take it, at least one, in the order of its key."""


class Hash:
    """The first of the order, whatever the load."""

    def choose(self, order: Sequence[C]) -> C:
        return order[0]


class RoundRobin:
    """Each node in its turn, by name."""

    def __init__(self) -> None:
        self._last = ""

    def choose(self, order: Sequence[C]) -> C:
        by_name = sorted(order, key=lambda each: each.name)
        chosen = next((each for each in by_name if each.name > self._last), by_name[0])
        self._last = chosen.name
        return chosen


class Jsq2:
    """The shorter queue of two nodes (power of two choices: Mitzenmacher, "The power of two choices in randomized load
    balancing", 2001)."""

    def choose(self, order: Sequence[C]) -> C:
        return min(order[:2], key=lambda each: each.queue)


class Wjsq2:
    """Of two nodes, the one whose queue with this text is shorter for its weight."""

    def choose(self, order: Sequence[C]) -> C:
        return min(order[:2], key=lambda each: (each.queue + 1) / each.weight)


class LeastQueueTime:
    """Of all nodes where a draft of the text is judged about as soon as anywhere, the one whose queue is shortest for
    its weight."""

    def choose(self, order: Sequence[C]) -> C:
        soonest = min(each.queue_time for each in order)
        near = [each for each in order if each.queue_time <= _ABOUT * soonest]
        return min(near, key=lambda each: each.queue / each.weight)


POLICIES: dict[str, Callable[[], Policy]] = {
    "hash": Hash,
    "round_robin": RoundRobin,
    "jsq2": Jsq2,
    "wjsq2": Wjsq2,
    "least_queue_time": LeastQueueTime,
}
