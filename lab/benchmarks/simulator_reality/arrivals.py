"""When conversations are asked for in a real run: as in the simulation with the same seed."""

import random
from collections import deque

from lab.benchmarks.simulator_reality.drafter import Work
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.workload import ClosedArrivals
from lab.simulator.fleet.conversation import Conversation


class Arrivals:
    """The conversations to come. Times in seconds since the beginning."""

    def __init__(self, configuration: Configuration, seed: int) -> None:
        workload = configuration.workload
        self._coming = workload.conversations(random.Random(f"{seed}/workload"))
        self._closed = isinstance(workload, ClosedArrivals)
        self._due: deque[tuple[float, Conversation]] = deque()
        for _ in range(workload.users if isinstance(workload, ClosedArrivals) else 1):
            self._next(0.0)

    @property
    def due(self) -> float:
        """When the next one comes."""
        return min((when for when, _ in self._due), default=float("inf"))

    def until(self, now: float) -> list[Work]:
        """Those that have come."""
        come: list[Work] = []
        while self.due <= now:
            first = min(self._due, key=lambda each: each[0])
            self._due.remove(first)
            come.append(Work(first[1], first[0]))
            if not self._closed:
                self._next(0.0)
        return come

    def over(self, now: float) -> None:
        """A user's conversation is over."""
        if self._closed:
            self._next(now)

    def _next(self, now: float) -> None:
        conversation = next(self._coming, None)
        if conversation is not None:
            start = max(now, conversation.start) + conversation.turns[0].think
            self._due.append((start, conversation))
