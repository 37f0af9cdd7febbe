"""The reactor's timer: no moment is missed, however long its threads wait for a core."""

from itertools import count
from typing import Any

from specpair.drafters.run.reactor import PlainTranscript, Reactor


class Waiting:
    """A controller with nothing to do before `moment` (s)."""

    forced, moment = 0, 0.5

    def reflect(self) -> bool:
        return False

    def next_draft(self, now: float) -> None:
        return None

    next_step = next_draft

    def wake_at(self, now: float) -> float | None:
        return self.moment if self.moment > now else None


def test_a_moment_that_passes_while_the_reactor_decides_is_not_missed() -> None:
    seconds = count()  # that pass from one reading of the clock to the next
    given: Any = Waiting()
    no_executor: Any = None
    reactor = Reactor(PlainTranscript([0], None), given, lambda *_: None, lambda: float(next(seconds)))
    assert reactor.run_due(no_executor, acted=False) == Waiting.moment
    assert reactor.run_due(no_executor, acted=True) == Waiting.moment
    assert reactor.run_due(no_executor, acted=False) is None
