"""The verifiers of a fleet, as the router knows them. Times in seconds."""

import random
from typing import Protocol

from gateway.balancing import queue_time
from lab.simulator.configuration.devices import VerifierKeys
from lab.simulator.fleet.record import Sample
from lab.simulator.fleet.text import Agreeing, Choices, RuleTarget, Text
from lab.simulator.virtual.draft_engine import DraftEngine, Learnt
from lab.simulator.virtual.rounds import VirtualRounds
from lab.simulator.virtual.world import EventLoop, ProcessQueue, SharedDevice, Verifier
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.policy.draft_length import MAX_AUTO
from verifier_server.engine.composer import BatchPlan
from verifier_server.engine.head_drafts import HeadQuestion


class TextHere(Protocol):
    """A text that a node writes. `name`: of its session."""

    name: str
    text: Text
    deadline: float

    @property
    def tokens_left(self) -> int:
        """Output tokens that are not committed yet."""


_CONTEXT = 512  # tokens of the text for which the times of passes are told


class FleetNode:
    """A verifier of a fleet: a `Candidate` of the policies."""

    def __init__(self, loop: EventLoop, name: str, kind: VerifierKeys, batching_window: float) -> None:
        self.name, self.kind, self.weight = name, kind, kind.weight
        self.runs: dict[TextHere, None] = {}  # texts under way there, in the order of their beginning
        self.passes, self.busy = 0, 0.0  # forward passes, and the seconds that they took
        self.rows, self.tokens = 0, 0  # sequences and tokens of all passes
        # Of passes over 1, 2, … tokens, for a text that is alone.
        self.pass_times = [kind.pass_cost.seconds([(1 + drafts, _CONTEXT)]) for drafts in range(MAX_AUTO + 1)]
        http = kind.http
        self._process = ProcessQueue(http.engine_task) if http.engine_task else None
        self._workers = [ProcessQueue(http.worker_task) for _ in range(http.workers) if http.worker_task]
        self._loop = loop
        self._texts, self._waiting, self._begun = 0, 0, 0  # as it told, and texts begun since then
        draft = kind.draft
        run = SharedDevice(loop).run if kind.shares_device else None
        engine = None if draft is None else DraftEngine(loop, draft.pass_cost, draft.slots, run=run)
        self.learnt = Learnt(engine)  # of server-side drafting, as `rounds`
        self._heads: dict[str, Agreeing] = {}  # what the target's head drafts, by the name of the text
        self.verifier = Verifier(
            loop,
            RuleTarget(
                0 if kind.head is None else kind.head.depth,
                slots=kind.slots,
                context_length=kind.longest,
                max_batch_tokens=kind.batch_tokens,
            ),
            self._takes,
            pass_times=self.pass_times,
            prefill_chunk=kind.prefill_chunk,
            batching_window=batching_window,
            max_queue=kind.max_queue,
            run=run,
            process=self._process,
            head=None if kind.head_cost is None else (kind.head_cost, self._propose),
        )
        self.rounds: VirtualRounds | None = None
        if engine is not None or kind.head is not None:
            self.rounds = VirtualRounds(loop, self.verifier, engine, self.pass_times, overlaps=run is None)

    def connect(self, rng: random.Random) -> tuple[ProcessQueue, ...]:
        """The processes that handle the messages of a device, on the way in. `rng`: selects the worker."""
        way = [rng.choice(self._workers)] if self._workers else []
        return tuple(way if self._process is None else [*way, self._process])

    def _takes(self, plan: BatchPlan) -> float:
        sequences = [(len(entry.tokens), entry.start) for entry in plan.batch]
        seconds = self.kind.pass_cost.seconds(sequences)
        self.passes += 1
        self.busy += seconds
        self.rows += len(sequences)
        self.tokens += sum(tokens for tokens, _ in sequences)
        return seconds

    def _propose(self, asked: HeadQuestion) -> Proposal | None:
        """What the target's head drafts; None: the text is over."""
        head, text = self._heads.get(asked.session.id), asked.session.tokens
        return None if head is None else head.expand(text, [asked.tail], asked.runners_up).proposals[0]

    def sample(self) -> Sample:
        """A sample of the node now."""
        state = self.verifier.scheduler.state
        return Sample(
            self._loop.now,
            self.name,
            self.kind.name,
            waiting=state.waiting,
            held=state.slots_in_use,
            slots=state.slots,
            passes=self.passes,
            busy=self.busy,
            rows=self.rows,
            tokens=self.tokens,
        )

    # What the router knows.

    def look(self) -> None:
        """Update the load that the node reports."""
        self._texts, self._waiting, self._begun = len(self.runs), self.verifier.scheduler.state.waiting, 0

    def began(self, text: TextHere) -> None:
        """Note that a text has gone there."""
        self.runs[text] = None
        self._begun += 1
        if self.kind.head is not None:
            self._heads[text.name] = Agreeing(Choices(text.text, self.kind.head.agreement.built))

    def ended(self, text: TextHere) -> None:
        """Note that a text is written no longer."""
        self.runs.pop(text, None)
        self._heads.pop(text.name, None)

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
