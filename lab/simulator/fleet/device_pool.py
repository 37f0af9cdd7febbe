"""The devices of a fleet: each has one user at a time, and may come and go. Times in seconds."""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lab.simulator.drafting.engine import DraftEngine
from lab.simulator.fleet.settings import DeviceKind
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
        """The device is the user's from now on, until it is released. It is there."""

    def left(self) -> None:
        """The device is away."""

    def back(self) -> None:
        """The device is there again."""


class FleetDevice:
    """A device."""

    __slots__ = ("free", "kind", "learnt", "place", "there", "user")

    def __init__(self, loop: EventLoop, kind: DeviceKind, free: list["FleetDevice"], *, there: bool) -> None:
        """`free`: those of its kind that are there and have no user."""
        self.kind, self.there, self.free = kind, there, free
        self.learnt = Learnt(None if kind.cost is None else DraftEngine(loop, kind.cost))
        self.user: DeviceUser | None = None
        self.place = 0  # among the free ones, if it is one


class DevicePool:
    """Gives free devices to users: first come, first served, each of the free devices as likely."""

    def __init__(self, loop: EventLoop, kinds: Sequence[DeviceKind], stream: Callable[[str], random.Random]) -> None:
        """`stream`: the stream of chance of a name."""
        self._loop, self._kinds, self._stream = loop, kinds, stream
        self._free: list[list[FleetDevice]] = [[] for _ in kinds]  # by kind, those that are there
        self._waiting: deque[DeviceUser] = deque()
        for number, kind in enumerate(kinds):
            for each in range(kind.count or 0):
                periods = iter(kind.availability(stream(f"availability of device {number}/{each}")))
                self._wait(FleetDevice(loop, kind, self._free[number], there=False), periods)

    def take(self, user: DeviceUser, rng: random.Random) -> None:
        """Have the user begin at a device, once one is free. `rng`: decides which one."""
        kinds = self._kinds
        weights = [
            kind.share if kind.count is None else len(free) for kind, free in zip(kinds, self._free, strict=True)
        ]
        if not any(weights):
            self._waiting.append(user)
            return
        number = rng.choices(range(len(kinds)), weights)[0]
        if kinds[number].count is None:
            device = FleetDevice(self._loop, kinds[number], [], there=True)
        else:
            device = rng.choice(self._free[number])
            self._remove(device)
        self._give(device, user)

    def release(self, device: FleetDevice) -> None:
        """Take a device back from its user."""
        device.user = None
        if device.there and device.kind.count is not None:
            self._offer(device)

    def _give(self, device: FleetDevice, user: DeviceUser) -> None:
        device.user = user
        user.begin(device)

    def _offer(self, device: FleetDevice) -> None:
        """Give a device that is there to who waits, or leave it free."""
        if self._waiting:
            self._give(device, self._waiting.popleft())
        else:
            device.place = len(device.free)
            device.free.append(device)

    def _remove(self, device: FleetDevice) -> None:
        last = device.free.pop()
        if last is not device:
            device.free[device.place] = last
            last.place = device.place

    # Coming and going.

    def _wait(self, device: FleetDevice, periods: Iterator[tuple[float, float]]) -> None:
        """Wait for its next period; without one, it stays away."""
        period = next(periods, None)
        if period is None:
            return
        begin, end = period

        def come() -> None:
            device.there = True
            if end < float("inf"):
                self._loop.at(end, lambda: self._leave(device, periods))
            if device.user is None:
                self._offer(device)
            else:
                device.user.back()

        if begin <= self._loop.now:
            come()
        else:
            self._loop.at(begin, come)

    def _leave(self, device: FleetDevice, periods: Iterator[tuple[float, float]]) -> None:
        device.there = False
        if device.user is None:
            self._remove(device)
        else:
            device.user.left()
        self._wait(device, periods)
