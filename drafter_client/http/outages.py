"""Wait for a verifier that went away: check its health until it is ready. `retries` has the rules.

All waits of a pair are reported as one outage. It begins with the first wait, and is over when a request is answered
and no thread waits.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import NamedTuple, TypeVar

from drafter_client.http import retries
from drafter_client.http.retries import PATIENCE
from specpair.protocol.errors import EngineError, SpecPairError

T = TypeVar("T")


class Stop:
    """A flag that any thread may set. It ends the waiting for a verifier, and aborts the request under way. A text's
    flag is set when no more of the text is wanted.

    The flag counts as set if the flag `above`, such as the pair's, is set: then none of the pair's texts waits.
    """

    def __init__(self, above: "Stop | None" = None) -> None:
        self._event, self._above = threading.Event(), above
        self._lock = threading.Lock()
        self._breaks: list[Callable[[], None]] = []

    def set(self) -> None:
        with self._lock:
            self._event.set()
            breaks = list(self._breaks)
        for each in breaks:
            each()

    def is_set(self, *, above: bool = True) -> bool:
        return self._event.is_set() or (above and self._above is not None and self._above.is_set())

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as this flag or the one above is set."""
        with nullcontext() if self._above is None else self._above.breaking(self._event.set):
            self._event.wait(seconds)

    @contextmanager
    def breaking(self, abort: Callable[[], None], *, above: bool = True) -> Iterator[None]:
        """Within the block, setting the flag calls `abort`, in the thread that sets it. If it is set already, `abort`
        is called at once. `above`: whether the flag above does so, too."""
        with nullcontext() if self._above is None or not above else self._above.breaking(abort):
            with self._lock:
                self._breaks.append(abort)
                already_set = self._event.is_set()
            if already_set:
                abort()
            try:
                yield
            finally:
                with self._lock:
                    self._breaks.remove(abort)


class Health(NamedTuple):
    """The health of a verifier."""

    ready: bool
    why: str = ""  # it is not ready
    progress: float | None = None  # how much of its model it has loaded, 0 to 1; None: unknown
    identity: str = ""  # if it is ready, and tells it to this caller
    draining: bool = False  # whether it takes no new texts any more, and ends those under way
    texts: int = 0  # under way
    waiting: int = 0  # requests that wait for a pass
    overloaded: bool = False  # whether it refuses new texts


class Outage(NamedTuple):
    """A wait for a verifier, as the user is told of it: `seconds` waited so far, `patience` seconds at most, `why` the
    verifier is not ready, and the `progress` of loading its model (0 to 1; None: unknown).

    `over`: whether the verifier answers again, which is told last, and once.
    """

    seconds: float
    patience: float
    why: str
    progress: float | None = None
    over: bool = False


class Outages:
    """Waits for one verifier, for all texts and connections of a pair. May be used from any thread."""

    def __init__(
        self,
        patience: float = PATIENCE,
        on_outage: Callable[[Outage], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        start_patience: float | None = None,
    ) -> None:
        """`patience`: seconds that a wait lasts at most.
        `on_outage`: called about once a second of waiting, and when an outage is over, by one thread at a time.
        `start_patience`: seconds that a wait lasts at most before a text has begun; None: as others.
        """
        self.patience = patience
        self.start_patience = patience if start_patience is None else min(start_patience, patience)
        self.present: Outage | None = None  # None: no outage is known
        self.stop = Stop()  # ends all waiting, now and later
        self._on_outage, self._clock = on_outage, clock
        self._telling = threading.Lock()
        self._last_told = self._began = 0.0
        self._waiting = 0  # waits that have not ended
        self._answered = False  # whether one of those that ended was answered

    def retry_through_outage(self, request: Callable[[], T], check_health: Callable[[], Health]) -> T:
        """Return the result of `request`, which is repeated after each outage. `check_health` asks for the verifier's
        health.

        Raises the last error when the wait is over or stopped.
        """
        outage: OutageWait | None = None
        answered = False
        try:
            while True:
                try:
                    result = request()
                    answered = True
                    return result
                except Exception as failure:
                    if not retries.is_outage(failure):
                        raise
                    outage = outage or self.begin(self.stop, failure, begun=False)
                    if not outage.until_ready(failure, check_health):
                        raise
        finally:
            if outage is not None:
                outage.end(answered)

    def begin(self, stop: Stop, failure: Exception, *, begun: bool) -> "OutageWait":
        """Begin a wait after `failure`, which has to be ended.

        `stop`: ends the waiting.
        `begun`: whether a token of the text has been generated; where there is no text, False.
        """
        with self._telling:
            self._waiting += 1
        patience = retries.outage_patience(self.patience if begun else self.start_patience, failure, begun)
        return OutageWait(self, stop, self._clock, patience)

    def tell(self, outage: Outage) -> None:
        """Note the outage, and call `on_outage` unless that was called less than a second ago."""
        with self._telling:
            now = self._clock()
            first = self.present is None
            self.present = outage
            if first:
                self._began = now - outage.seconds
            if self._on_outage is not None and (first or now - self._last_told >= 1.0):
                self._last_told = now
                self._on_outage(outage)

    def noticed(self, why: str, progress: float | None = None) -> None:
        """Note that a health check outside of waits found the verifier not ready. The arguments: as in `Outage`."""
        began = self._clock() if self.present is None else self._began
        self.tell(Outage(self._clock() - began, self.patience, why, progress))

    def answered(self) -> None:
        """Note that the verifier is there. If nobody waits for it, the outage is over."""
        with self._telling:
            self._over_if(self._waiting == 0)

    def ended(self, answered: bool) -> None:
        with self._telling:
            self._waiting -= 1
            self._answered = self._answered or answered
            self._over_if(self._waiting == 0 and self._answered)

    def _over_if(self, over: bool) -> None:
        if over:
            self._answered = False
            told, self.present = self.present, None
            if told is not None and self._on_outage is not None:
                self._on_outage(told._replace(seconds=self._clock() - self._began, progress=None, over=True))


class OutageWait:
    """The wait through one outage, from the first failure until a request succeeds. `Outages.begin` makes it."""

    def __init__(self, outages: Outages, stop: Stop, clock: Callable[[], float], patience: float) -> None:
        self._outages, self._stop, self._clock, self._patience = outages, stop, clock, patience
        self._began = clock()
        self._failures = 0  # requests in a row that failed although a health check had found the verifier ready

    def end(self, answered: bool) -> None:
        self._outages.ended(answered)

    def until_ready(self, failure: Exception, check_health: Callable[[], Health]) -> bool:
        """Wait until `check_health` finds the verifier ready. Returns False if the wait was stopped.

        `failure`: the error of the last request. If requests fail although the verifier is ready, each pause is longer.

        Raises `failure` when the patience is over, which the message then says, after too many such failures, or if it
        is no outage; and whatever `check_health` raises.
        """
        if self._failures or isinstance(failure, retries.REFUSED_FOR_NOW):
            pause = retries.before_health_check(failure, self._failures, self._waited, self._patience)
            self._wait(pause, Health(False, str(failure)), failure)
        away = False
        while not self._stop.is_set():
            health = check_health()
            if health.ready:
                if isinstance(failure, EngineError) and not away and not self._failures:  # it did not go away
                    raise failure
                self._failures = 1 if away else self._failures + 1
                return True
            away = True
            self._wait(retries.CHECK_PAUSE, health, failure)
        return False

    def _wait(self, pause: float | None, health: Health, failure: Exception) -> None:
        """Pause, but not beyond the patience. Raises `failure` if that is over, or without a pause."""
        left = self._patience - self._waited
        if left <= 0.0 < self._patience:
            details = failure.details if isinstance(failure, SpecPairError) else {}
            raise type(failure)(f"waited {self._waited:.0f} s for the verifier (patience): {failure}", **details)
        if pause is None or left <= 0.0:
            raise failure
        self._outages.tell(Outage(self._waited, self._patience, health.why, health.progress))
        self._stop.wait(min(pause, left))

    @property
    def _waited(self) -> float:
        return self._clock() - self._began
