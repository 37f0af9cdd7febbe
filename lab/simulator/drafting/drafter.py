"""A drafter in virtual time whose draft model has to read the text: before the first draft step, and what is new.

As in `ModelDrafter`: a draft step feeds what its slot does not hold yet of the text and of the continuation. The text
so far is read in chunks while the verifier reads it, if drafting and verifying overlap; else the first step reads it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from lab.simulator.drafting.engine import DraftEngine
from lab.simulator.virtual.drafter import VirtualDrafter
from lab.simulator.virtual.world import ReachableVerifier
from specpair.drafters.base import Drafter
from specpair.drafters.run.events import Committed, RunEvent
from specpair.drafters.run.executors import READ_CHUNK
from specpair.speculation.acceptance.strategies import common_prefix
from specpair.speculation.drafts.node_selection import DraftStep
from specpair.speculation.sampling.sampling import Sampling
from verifier_server.engine.requests import Answer


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
        self.held = held  # tokens of the text that the draft model's slot holds, without `_tail`
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
        new = self.controller.known[self.held : step.length]
        agree = common_prefix(new, self._tail)
        held = self.held + agree
        if agree == len(new):
            held += common_prefix(self._tail[agree:], tail)
        feed = max(1, whole - held)
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
