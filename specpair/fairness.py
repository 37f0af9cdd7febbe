"""Fairness between clients: whose turn it is, the share of one client, the value of Retry-After."""

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable
from itertools import count
from operator import itemgetter
from typing import Generic, TypeVar

Item = TypeVar("Item")

CLIENTS = 4096  # clients that are remembered, those that came or had a turn most recently
_WEIGHT = 0.2  # weight (0 to 1) of the latest interval in the moving average of the intervals between freed places


class FairTurns(Generic[Item]):
    """Has clients take turns, so that a client with much work displaces no other client.

    The client whose last turn is the longest ago comes first; for one that had none, the time counts when it came. What
    a client waits for keeps its own order. So while a client waits for its turn, each other has one turn at most.
    """

    def __init__(self, client_of: Callable[[Item], Hashable]) -> None:
        self._client_of = client_of
        self._numbers = count(1)
        self._latest: OrderedDict[Hashable, int] = OrderedDict()  # when each client had a turn or came, by `_numbers`

    def arrived(self, item: Item) -> None:
        """Note that `item` waits from now on."""
        client = self._client_of(item)
        if client not in self._latest:
            self._note(client)

    def had_turn(self, item: Item) -> None:
        """Note that `item` is served: its client has its turn."""
        self._note(self._client_of(item))

    def _note(self, client: Hashable) -> None:
        self._latest[client] = next(self._numbers)
        self._latest.move_to_end(client)
        if len(self._latest) > CLIENTS:
            self._latest.popitem(last=False)

    def order(self, waiting: Iterable[Item]) -> list[Item]:
        """Sort waiting items: the first of each client, then the second of each, …, by the order in `waiting`."""
        waiting = list(waiting)
        if len(waiting) < 2:
            return waiting
        before: Counter[Hashable] = Counter()
        ranked: list[tuple[int, int, Item]] = []
        for item in waiting:
            client = self._client_of(item)
            ranked.append((before[client], self._latest.get(client, 0), item))  # 0: it is forgotten, so it comes first
            before[client] += 1
        return [item for _, _, item in sorted(ranked, key=itemgetter(0, 1))]

    def pop_next(self, waiting: list[Item]) -> Item:
        """Remove the item that comes first from `waiting` and return it: its client has its turn."""
        item = min(waiting, key=lambda each: self._latest.get(self._client_of(each), 0))
        waiting.remove(item)
        self.had_turn(item)
        return item


def share_of_one_client(places: int) -> int:
    """The number of `places` that one client may take: three quarters. The rest is for other clients."""
    return places - places // 4


def retry_after(seconds: float) -> int:
    """The value of the header Retry-After for a wait of about `seconds`: whole seconds, at least 1."""
    return max(1, math.ceil(seconds))


class ReleaseRate:
    """Measures how many slots are taken, and how often a slot is freed. Times are in seconds."""

    def __init__(self) -> None:
        self.busy = 0  # places taken
        self._since = 0.0  # when the last place was freed, or the first was taken
        self._rests = 0  # how often a place was freed
        self._every = 0.0  # moving average of the interval between two such times

    def taken(self, now: float) -> None:
        """Note that one more slot is taken."""
        if not self.busy:
            self._since = now
        self.busy += 1

    def freed(self, now: float) -> None:
        """Note that a slot was freed."""
        self.busy -= 1
        if self._rests:
            self._every += (_WEIGHT if self._rests > 1 else 1.0) * (now - self._since - self._every)
        self._rests += 1
        self._since = now

    def expected(self, now: float) -> float:
        """Estimated seconds until a slot is freed: the average interval, or the present interval if it is longer."""
        return max(self._every, now - self._since)
