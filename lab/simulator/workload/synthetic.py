"""Workloads that are drawn: open ones, in which conversations begin by themselves, and the closed loop of a number of
users."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from lab.simulator.workload.arrivals import Arrivals
from lab.simulator.workload.conversation import Conversation
from lab.simulator.workload.distributions import ZERO, Distribution
from lab.simulator.workload.streams import streams
from lab.simulator.workload.tenants import Tenant, deal


@dataclass(frozen=True, slots=True)
class Open:
    """Conversations begin as `arrivals` has it. `tenants`: at least one, with different names."""

    arrivals: Arrivals
    tenants: Sequence[Tenant]

    def conversations(self, rng: random.Random) -> Iterator[Conversation]:
        stream = streams(rng)
        return deal(self.tenants, self.arrivals.times(stream("arrivals")), stream("conversations"))


@dataclass(frozen=True, slots=True)
class Closed:
    """`users` have one conversation after the other.

    Who runs them begins `users` of them, and another as one ends, which may start at 0.

    `pause`: seconds before the first turn of each, after its start or the end of the user's conversation before.
    `ramp`: seconds in which the users begin, one after the other in equal distances; 0: all at once.
    """

    users: int
    tenants: Sequence[Tenant]
    pause: Distribution = ZERO
    ramp: float = 0.0

    def conversations(self, rng: random.Random) -> Iterator[Conversation]:
        begins = (self.ramp * number / self.users for number in range(self.users))
        return deal(self.tenants, chain(begins, repeat(0.0)), streams(rng)("conversations"), self.pause)
