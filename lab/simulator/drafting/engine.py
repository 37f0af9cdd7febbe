"""The engine of a draft model in virtual time: that of one device, or that of a server, which many texts share.

It shares passes as `specpair.drafters.shared_engine` does. A call that finds the engine idle runs at once, alone. Calls
that come while a pass runs wait for its end, and then run together in one pass, as many as fit, in order of arrival. No
call waits for others to come.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lab.simulator.costs.cost import PassCost, SequencePass
from lab.simulator.virtual.world import EventLoop
from specpair.drafters.run.executors import READ_CHUNK
from specpair.drafters.warm_engine import READ_WIDTH


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
        self.passes = self.calls = 0
        self.busy = 0.0  # seconds of all passes
        self.step_time = cost.seconds([(1, 2)])  # seconds of a draft step behind hardly any text, as timed at load
        self.read_time = cost.seconds([(READ_WIDTH, 0)]) / READ_WIDTH  # of a token of a text
        self._cost, self._slots, self._batch_tokens = cost, slots, batch_tokens
        self._waiting: deque[_DraftCall] = deque()
        self._run = run or (lambda seconds, over: clock.at(clock.now + seconds, over))
        self._runs = False
        self._lent = 0
        self._queued: deque[Callable[[], bool]] = deque()  # texts that wait for a slot
        self._kept: OrderedDict[str, int] = OrderedDict()  # tokens that free slots hold, the oldest text first

    def run(self, batch: Sequence[SequencePass], then: Callable[[], object]) -> None:
        """Run `batch` in a pass, perhaps with other calls, and call `then` when that is over."""
        self.calls += 1
        self._waiting.append(_DraftCall(batch, then))
        if not self._runs:
            self._lead()

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
        seconds = self._cost.seconds([each for call in taken for each in call.batch])
        self.passes += 1
        self.busy += seconds

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
        """Keep `tokens` tokens of the text `name`, which is over for now; what was kept longest is forgotten."""
        self._kept[name] = tokens
        if len(self._kept) > self._slots:
            self._kept.popitem(last=False)
