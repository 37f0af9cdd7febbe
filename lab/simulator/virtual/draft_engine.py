"""Draft models in virtual time: the engine of a device or of a server, and a drafter that must read the text.

The engine shares passes as `specpair.drafters.shared_engine` does. A call that finds it idle runs at once, alone. Calls
that come while a pass runs wait for its end, and then run together in one pass, as many as fit, in order of arrival.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from lab.simulator.costs.cost import PassCost, SequencePass
from lab.simulator.virtual.drafter import VirtualDrafter
from lab.simulator.virtual.world import EventLoop, ReachableVerifier
from specpair.drafters.base import READ_CHUNK, Drafter
from specpair.drafters.run.events import Committed, RunEvent
from specpair.drafters.warm_engine import PATIENCE, READ_WIDTH
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.drafting.composed_context import SIZES
from specpair.speculation.drafting.node_selection import DraftStep
from specpair.speculation.policy.experience import Experience
from specpair.speculation.sampling.sampling import Sampling
from verifier_server.engine.arrived_drafts import Answer

_CONTEXT = 4096  # tokens of a draft model's context where none is given


def fed_tokens(new: Sequence[int], held_tail: Sequence[int], tail: Sequence[int]) -> int:
    """How many tokens a pass feeds, at least 1: of the text's `new` ones and `tail`, those that the slot does not hold.

    `held_tail`: what the slot holds behind the text before `new`.
    """
    agree = common_prefix(new, held_tail)
    held = agree + (common_prefix(held_tail[agree:], tail) if agree == len(new) else 0)
    return max(1, len(new) + len(tail) - held)


class _DraftCall(NamedTuple):
    batch: Sequence[SequencePass]
    then: Callable[[], object]

    @property
    def tokens(self) -> int:
        return sum(new for new, _ in self.batch)


class DraftEngine:
    """The engine of a draft model."""

    def __init__(
        self,
        clock: EventLoop,
        cost: PassCost,
        slots: int = 1,
        batch_tokens: int = READ_CHUNK,
        run: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        """`slots`: texts that it drafts for at once.
        `batch_tokens`: tokens of a pass that calls share, at most.
        `run`: that of a `SharedDevice`; None: it has its device for itself.
        """
        self.step_time = cost.seconds([(1, 2)])  # seconds of a draft step behind hardly any text, as timed at load
        self._read_time = cost.seconds([(READ_WIDTH, 0)]) / READ_WIDTH  # of a token of a prompt
        self._cost, self._slots, self._batch_tokens = cost, slots, batch_tokens
        self._waiting: deque[_DraftCall] = deque()
        self._run = run or (lambda seconds, over: clock.at(clock.now + seconds, over))
        self._runs = False
        self._lent = 0
        self._queued: deque[Callable[[], bool]] = deque()  # texts that wait for a slot
        self._kept: OrderedDict[str, int] = OrderedDict()  # tokens that free slots hold, the oldest text first

    def run(self, batch: Sequence[SequencePass], then: Callable[[], object]) -> None:
        """Run `batch` in a pass, perhaps with other calls, and call `then` when the pass is over."""
        self._waiting.append(_DraftCall(batch, then))
        if not self._runs:
            self._lead()

    def begun(self, length: int, held: int) -> int:
        """How many of the first tokens of a prompt need not be read, where a slot holds `held`.

        Of a long one, sink and window are read. What pieces take is left out: they are read between steps.
        """
        return max(held, length - SIZES.sink - SIZES.window) if self._long(length) else held

    def _in_context(self, held: int) -> int:
        """How much of a text a pass attends to, where its first `held` tokens count as read."""
        return min(held, SIZES.most) if self._long(held) else held

    def _long(self, length: int) -> bool:
        """Whether it reads only parts of a text: where reading all of it would take long, or it is too long.

        `WarmEngine` decides alike, by the time that the new tokens of a text take. So a long text that grew turn by
        turn is simulated as read in parts, where the draft model that ships would have all of it in its context.
        """
        too_long = length > _CONTEXT - SIZES.window or length * self._read_time > PATIENCE
        return length > SIZES.sink + SIZES.window and too_long

    def _lead(self) -> None:
        """Run a pass for the first waiting call and those that fit beside it."""
        self._runs = bool(self._waiting)
        if not self._runs:
            return
        taken = [self._waiting.popleft()]
        room = self._batch_tokens - taken[0].tokens
        for call in [*self._waiting]:
            if call.tokens <= room:
                self._waiting.remove(call)
                taken.append(call)
                room -= call.tokens
        seconds = self._cost.seconds([(new, self._in_context(held)) for call in taken for new, held in call.batch])

        def over() -> None:
            self._lead()  # before those that have their results call again
            for call in taken:
                call.then()

        self._run(seconds, over)

    # Slots.

    def lend(self, do: Callable[[], bool]) -> None:
        """Call `do` as soon as a slot is free, in order of arrival. It returns whether it takes the slot."""
        self._queued.append(do)
        self._lend()

    def _lend(self) -> None:
        while self._queued and self._lent < self._slots:
            self._lent += self._queued.popleft()()

    def free(self) -> None:
        """Give back a slot that was lent."""
        self._lent -= 1
        self._lend()

    def held(self, name: str) -> int:
        """How many tokens of the text `name` a slot holds from its last turn; it is that text's slot from now on."""
        return self._kept.pop(name, 0)

    def keep(self, name: str, tokens: int) -> None:
        """Keep `tokens` tokens of the text `name`, which is over for now, and forget the oldest text."""
        self._kept[name] = tokens
        if len(self._kept) > self._slots:
            self._kept.popitem(last=False)


@dataclass(slots=True)
class Learnt:
    """The state that a device or a drafting server keeps from text to text. `engine`: None without drafting."""

    engine: DraftEngine | None = None
    experience: Experience = field(default_factory=Experience)


class EngineDrafter(VirtualDrafter):
    """A drafter with a draft engine."""

    def __init__(
        self,
        place: ReachableVerifier,
        prompt: Sequence[int],
        drafter: Drafter,
        engine: DraftEngine,
        held: int,
        tell: Callable[[Committed], object],
        guard: Callable[[Callable[[], object]], Callable[[], object]] = lambda do: do,
        **options: Any,
    ) -> None:
        """`held`: tokens of the text that the engine need not read.
        `tell`: takes the committed tokens, those of the prefill first.
        `guard`: changes what is called when a pass of the engine is over, as where the text may be lost by then.
        `options`: further arguments of `VirtualDrafter`.
        """
        super().__init__(place, prompt, Sampling(), drafter, lambda branches: 0.0, **options)
        # Tokens of the text that the draft model's slot holds, without `_tail`, or need not hold.
        self.held = engine.begun(len(prompt), held)
        self._engine, self._tell, self._guard = engine, tell, guard
        self._tail: list[int] = []  # what the slot holds behind the text
        self._reads = False  # whether a chunk of the text is being read
        self._put_off: Callable[[], None] | None = None  # the draft step that waits for that

    def start(self) -> None:
        super().start()
        if self._mechanisms.overlap:
            self._read_on(len(self.session.tokens))

    def _read_on(self, length: int) -> None:
        """Read the next chunk of the first `length` tokens."""
        chunk = min(length - self.held, READ_CHUNK)
        self._reads = chunk > 0
        if self._reads:
            self._engine.run([(chunk, self.held)], self._guard(partial(self._chunk_read, chunk, length)))
        elif self._put_off is not None:
            step, self._put_off = self._put_off, None
            step()

    def _chunk_read(self, chunk: int, length: int) -> None:
        self.held += chunk
        self._before += chunk
        self._read_on(length)

    def _run_step(self, step: DraftStep, tails: Sequence[list[int]], then: Callable[[], None]) -> None:
        if self._reads:
            self._put_off = lambda: self._run_step(step, tails, then)
            return
        assert self.controller is not None
        whole, tail = step.length + len(tails[0]), tails[0]
        feed = fed_tokens(self.controller.known[self.held : step.length], self._tail, tail)
        self._before += feed - 1
        self.held, self._tail = step.length, list(tail)
        self._engine.run(
            [(feed, whole - feed), *((1, step.length + len(each)) for each in tails[1:])],
            self._guard(then),
        )

    # What is told.

    def _opened(self, answer: Answer) -> None:
        self._tell(Committed(answer.position, answer.details.sourced(answer.tokens), answer.details))
        super()._opened(answer)

    def _count(self, event: RunEvent, now: float) -> None:
        super()._count(event, now)
        if isinstance(event, Committed):
            self._tell(event)
