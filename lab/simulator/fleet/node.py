"""A verifier as the router knows it, with the verifier behind it. Times in seconds."""

from typing import Protocol

from gateway.balancing import queue_time
from lab.simulator.drafting.engine import DraftEngine
from lab.simulator.drafting.rounds import VirtualRounds
from lab.simulator.fleet.device_pool import Learnt
from lab.simulator.fleet.record import Sample
from lab.simulator.fleet.settings import VerifierKind
from lab.simulator.fleet.text import RuleTarget
from lab.simulator.virtual.shared_device import SharedDevice
from lab.simulator.virtual.world import EventLoop, Verifier
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
