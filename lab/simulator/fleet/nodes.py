"""The verifiers of a fleet, as the router knows them, as they fail, come back, start and stop. Times in seconds."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from gateway.balancing import queue_time
from lab.simulator.fleet.record import FleetObserver, Sample
from lab.simulator.fleet.settings import Autoscaling, Breakdowns, FleetSetting, VerifierKind
from lab.simulator.fleet.text import RuleTarget
from lab.simulator.virtual.draft_engine import DraftEngine, Learnt
from lab.simulator.virtual.rounds import VirtualRounds
from lab.simulator.virtual.world import EventLoop, SharedDevice, Verifier
from specpair.speculation.policy.draft_length import MAX_AUTO
from verifier_server.engine.composer import BatchPlan


class TextHere(Protocol):
    """A text that a node writes."""

    deadline: float

    @property
    def tokens_left(self) -> int:
        """Output tokens that are not committed yet."""

    def lose(self) -> None:
        """Go on elsewhere: the node is lost."""


_CONTEXT = 512  # tokens of the text for which the times of passes are told


class FleetNode:
    """A verifier of a fleet: a `Candidate` of the policies."""

    def __init__(self, loop: EventLoop, name: str, kind: VerifierKind) -> None:
        self.name, self.kind = name, kind
        self.up = True  # whether it is there
        self.draining = False  # whether it takes no new texts
        self.runs: dict[TextHere, None] = {}  # texts under way there, in the order of their beginning
        self.passes, self.busy = 0, 0.0  # forward passes, and the seconds that they took
        self.rows, self.tokens = 0, 0  # sequences and tokens of all passes
        # Of passes over 1, 2, … tokens, for a text that is alone.
        self.pass_times = [kind.cost.seconds([(1 + drafts, _CONTEXT)]) for drafts in range(MAX_AUTO + 1)]
        self._loop = loop
        self._texts, self._waiting, self._begun = 0, 0, 0  # as it told, and texts begun since then
        self.verifier, self.learnt, self.rounds = self._start()

    def _start(self) -> tuple[Verifier, Learnt, VirtualRounds | None]:
        """A verifier with nothing in its slots, and what server-side drafting has."""
        kind = self.kind
        run = SharedDevice(self._loop).run if kind.draft_shares_device else None
        drafts = None
        if kind.draft_cost is not None:
            drafts = DraftEngine(self._loop, kind.draft_cost, kind.draft_slots, run=run)
        backend = RuleTarget(slots=kind.slots, context_length=kind.context, max_batch_tokens=kind.batch_tokens)
        verifier = Verifier(
            self._loop,
            backend,
            self._takes,
            pass_times=self.pass_times,
            prefill_chunk=kind.prefill_chunk,
            batching_window=kind.batching_window,
            max_queue=kind.max_queue,
            run=run,
        )
        rounds = None
        if drafts is not None:
            rounds = VirtualRounds(self._loop, verifier, drafts, self.pass_times, overlaps=run is None)
        return verifier, Learnt(drafts), rounds

    def _takes(self, plan: BatchPlan) -> float:
        sequences = [(len(entry.tokens), entry.start) for entry in plan.batch]
        seconds = self.kind.cost.seconds(sequences)
        self.passes += 1
        self.busy += seconds
        self.rows += len(sequences)
        self.tokens += sum(tokens for tokens, _ in sequences)
        return seconds

    def sample(self) -> Sample:
        """What it is like now."""
        state = self.verifier.scheduler.state
        return Sample(
            self._loop.now,
            self.name,
            self.kind.name,
            self.up,
            len(self.runs),
            state.waiting if self.up else 0,
            state.slots_in_use if self.up else 0,
            state.slots,
            self.passes,
            self.busy,
            self.rows,
            self.tokens,
        )

    def fail(self) -> list[TextHere]:
        """Lose it, with all that it holds. Returns the texts that were under way there."""
        lost, self.runs, self.up = [*self.runs], {}, False
        self.verifier.stopped = True
        return lost

    def recover(self) -> None:
        """Begin anew, with nothing in the slots."""
        (self.verifier, self.learnt, self.rounds), self.up = self._start(), True
        self.look()

    # What the router knows.

    def look(self) -> None:
        """Note what it tells of its load."""
        state = self.verifier.scheduler.state
        self._texts, self._waiting, self._begun = len(self.runs), state.waiting, 0

    def began(self) -> None:
        """Note that a text has gone there."""
        self._begun += 1

    @property
    def weight(self) -> float:
        return self.kind.weight

    @property
    def queue(self) -> int:
        return self._texts + self._begun + self._waiting

    @property
    def queue_time(self) -> float:
        return queue_time(0.0, self.pass_times, self.kind.slots, self._texts + self._begun, self._waiting)

    @property
    def work(self) -> float:
        return float(sum(each.tokens_left for each in self.runs))

    @property
    def deadline(self) -> float:
        return min((each.deadline for each in self.runs), default=float("inf"))


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

    def _lose(self, node: FleetNode, back: float) -> None:
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
