"""The verifiers of a fleet, as they fail, come back, start and stop. Times in seconds."""

import random
from collections import Counter
from collections.abc import Callable

from lab.simulator.fleet.node import FleetNode
from lab.simulator.fleet.record import FleetObserver
from lab.simulator.fleet.settings import Autoscaling, Breakdowns, Failure, FleetSetting, VerifierKind
from lab.simulator.virtual.world import EventLoop


class Nodes:
    """All verifiers of a fleet."""

    def __init__(
        self,
        loop: EventLoop,
        setting: FleetSetting,
        stream: Callable[[str], random.Random],
        observer: FleetObserver,
        settle: Callable[[], object],
    ) -> None:
        """`stream`: the stream of chance of a name.
        `settle`: called when a verifier takes texts that took none before.
        """
        self.all: dict[str, FleetNode] = {}
        self.stopped: list[FleetNode] = []  # those that autoscaling has stopped
        self._loop, self._setting, self._stream = loop, setting, stream
        self._observer, self._settle = observer, settle
        self._starting: Counter[str] = Counter()  # those that autoscaling starts, by kind
        self._started: Counter[str] = Counter()  # those that it has started, by kind
        for name, kind in setting.verifiers.items():
            self._add(name, kind)
        for failure in setting.failures:
            loop.at(failure.at, lambda failure=failure: self._fail(failure))  # type: ignore[misc]
        for scaling in setting.autoscaling:
            self._every(scaling.every, lambda scaling=scaling: self._scale(scaling))  # type: ignore[misc]
        if setting.look_every:
            self._every(setting.look_every, self._look)
        if setting.sample_every:
            self._every(setting.sample_every, self._sample)

    def taking(self) -> list[FleetNode]:
        """Those that take new texts."""
        return [each for each in self.all.values() if each.up and not each.draining]

    def _every(self, seconds: float, do: Callable[[], object]) -> None:
        def again() -> None:
            do()
            self._loop.at(self._loop.now + seconds, again)

        self._loop.at(self._loop.now + seconds, again)

    def _add(self, name: str, kind: VerifierKind) -> None:
        self.all[name] = node = FleetNode(self._loop, name, kind)
        for number, breakdowns in enumerate(kind.breakdowns):
            self._wear(node, breakdowns, self._stream(f"{name}/breakdowns/{number}"))

    def _look(self) -> None:
        for each in self.all.values():
            if each.up:
                each.look()

    def _sample(self) -> None:
        self._observer.sample([each.sample() for each in self.all.values()])

    # Failures.

    def _wear(self, node: FleetNode, breakdowns: Breakdowns, chance: random.Random) -> None:
        """Have a node break down again and again."""

        def breaks() -> None:
            if self.all.get(node.name) is not node:
                return  # autoscaling has stopped it
            repair = breakdowns.repair(chance)
            if node.up:
                self._lose(node, self._loop.now + repair)
            self._loop.at(self._loop.now + repair + breakdowns.up(chance), breaks)

        self._loop.at(self._loop.now + breakdowns.up(chance), breaks)

    def _fail(self, failure: Failure) -> None:
        node = self.all.get(failure.node)
        if node is not None and node.up:  # else autoscaling has stopped it before, or it is lost already
            self._lose(node, failure.back)

    def _lose(self, node: FleetNode, back: float) -> None:
        if back < float("inf"):
            self._loop.at(back, lambda: self._back(node))
        for run in node.fail():
            run.lose()

    def _back(self, node: FleetNode) -> None:
        node.recover()
        self._settle()

    # Autoscaling.

    def _scale(self, scaling: Autoscaling) -> None:
        mine = [each for each in self.all.values() if each.kind == scaling.kind]
        for each in mine:
            if each.draining and not each.runs:
                self.stopped.append(self.all.pop(each.name))
        there = [each for each in mine if each.up and each.name in self.all]
        taking = [each for each in there if not each.draining]
        mean = sum(each.queue_time for each in taking) / len(taking) if taking else float("inf")
        kind = scaling.kind.name
        if mean > scaling.above and len(there) + self._starting[kind] < scaling.most:
            self._starting[kind] += 1
            self._loop.at(self._loop.now + scaling.start_delay, lambda: self._join(scaling.kind))
        elif mean < scaling.below and len(taking) > scaling.least:
            min(taking, key=lambda each: len(each.runs)).draining = True

    def _join(self, kind: VerifierKind) -> None:
        self._starting[kind.name] -= 1
        self._started[kind.name] += 1
        self._add(f"{kind.name or 'verifier'}-started-{self._started[kind.name]}", kind)
        self._settle()
