"""The devices of a fleet: each has one user at a time."""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lab.simulator.fleet.settings import DeviceKind
from lab.simulator.virtual.draft_engine import DraftEngine
from lab.simulator.virtual.world import EventLoop
from specpair.speculation.policy.experience import Experience


@dataclass(slots=True)
class Learnt:
    """What a device, or a server that drafts, keeps from text to text. `engine`: None where nothing drafts."""

    engine: DraftEngine | None = None
    experience: Experience = field(default_factory=Experience)


class DeviceUser(Protocol):
    """Who has a device."""

    def begin(self, device: "FleetDevice") -> None:
        """The device is the user's from now on, until it is released."""


class FleetDevice:
    """A device."""

    __slots__ = ("kind", "learnt")

    def __init__(self, loop: EventLoop, kind: DeviceKind) -> None:
        self.kind = kind
        self.learnt = Learnt(None if kind.cost is None else DraftEngine(loop, kind.cost))


class DevicePool:
    """Gives free devices to users: first come, first served, each of the free devices as likely."""

    def __init__(self, loop: EventLoop, kinds: Sequence[DeviceKind]) -> None:
        self._loop, self._kinds = loop, kinds
        self._free = [FleetDevice(loop, kind) for kind in kinds for _ in range(kind.count or 0)]
        self._waiting: deque[DeviceUser] = deque()

    def take(self, user: DeviceUser, rng: random.Random) -> None:
        """Have the user begin at a device, once one is free. `rng`: decides which one."""
        if self._kinds[0].count is None:
            user.begin(FleetDevice(self._loop, self._kinds[0]))
        elif self._free:
            number = rng.randrange(len(self._free))
            self._free[number], self._free[-1] = self._free[-1], self._free[number]
            user.begin(self._free.pop())
        else:
            self._waiting.append(user)

    def release(self, device: FleetDevice) -> None:
        """Take a device back from its user."""
        if device.kind.count is None:
            return
        if self._waiting:
            self._waiting.popleft().begin(device)
        else:
            self._free.append(device)
