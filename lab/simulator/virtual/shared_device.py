"""A device that a target model and a draft model share, as they do on one GPU. Times in seconds."""

from collections.abc import Callable

from lab.simulator.virtual.world import EventLoop


class _Pass:
    __slots__ = ("left", "then")

    def __init__(self, left: float, then: Callable[[], object]) -> None:
        self.left, self.then = left, then


class SharedDevice:
    """Passes that run at once share the device evenly (processor sharing): of two, each takes twice as long meanwhile.

    That is what happens to passes that all wait for the same memory or the same arithmetic units.
    """

    def __init__(self, clock: EventLoop) -> None:
        self._clock = clock
        self._passes: list[_Pass] = []
        self._updated = 0.0
        self._timer = 0  # the number of the latest one: those before count no more

    def run(self, seconds: float, then: Callable[[], object]) -> None:
        """Call `then` when a pass is over that takes `seconds` where nothing else runs."""
        self._update()
        self._passes.append(_Pass(seconds, then))
        self._wait()

    def _update(self) -> None:
        """Take in what has run since the last time."""
        now = self._clock.now
        if self._passes:
            each_ran = (now - self._updated) / len(self._passes)
            for each in self._passes:
                each.left -= each_ran
        self._updated = now

    def _wait(self) -> None:
        """Set the timer for the first pass that will be over, in place of the last one."""
        if not self._passes:
            return
        self._timer += 1
        timer, first = self._timer, min(self._passes, key=lambda each: each.left)

        def over() -> None:
            if timer == self._timer:
                self._update()
                self._passes.remove(first)
                self._wait()
                first.then()

        self._clock.at(self._clock.now + first.left * len(self._passes), over)
