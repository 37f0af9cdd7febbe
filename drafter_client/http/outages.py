"""Wait for a verifier that went away: check its health until it is ready. `retries` decides about every pause."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from drafter_client.http import retries
from drafter_client.http.health import Health
from drafter_client.http.retries import PATIENCE, Pause
from drafter_client.http.stop import Stop

T = TypeVar("T")


class Outage(NamedTuple):
    """A wait for a verifier, as the user is told of it: `seconds` waited so far, `patience` seconds at most, `why` the
    verifier is not ready, and the `progress` of loading its model (0 to 1; None: unknown)."""

    seconds: float
    patience: float
    why: str
    progress: float | None = None


class Outages:
    """Waits for one verifier, for all texts and connections of a pair. May be used from any thread."""

    def __init__(
        self,
        patience: float = PATIENCE,
        on_outage: Callable[[Outage], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`patience`: seconds that a wait lasts at most. `on_outage`: called about once a second of waiting, by one
        thread at a time. `clock`: returns seconds."""
        self.patience = patience
        self.stop = Stop()  # ends all waiting, now and later
        self._on_outage, self._clock = on_outage, clock
        self._telling = threading.Lock()
        self._last_told: float | None = None

    def retry_through_outage(self, request: Callable[[], T], check_health: Callable[[], Health]) -> T:
        """Return the result of `request`, which is repeated after each outage. `check_health` asks for the verifier's
        health.

        Raises the last error when the wait is over or stopped.
        """
        outage: _OutageWait | None = None
        while True:
            try:
                return request()
            except Exception as error:
                if not retries.is_outage(error):
                    raise
                failure = error
            outage = outage or self.begin(self.stop, failure)
            if not outage.until_ready(failure, check_health):
                raise failure from None

    def begin(self, stop: Stop, failure: Exception, *, begun: bool = True) -> "_OutageWait":
        """Begin a wait after `failure`. `stop`: ends it. `begun`: whether a token of the text has been generated; where
        there is no text, True."""
        return _OutageWait(self, stop, self._clock, retries.outage_patience(self.patience, failure, begun))

    def tell(self, outage: Outage) -> None:
        """Call `on_outage`, unless it was called less than a second ago."""
        with self._telling:
            now = self._clock()
            if self._on_outage is None or (self._last_told is not None and now - self._last_told < 1.0):
                return
            self._last_told = now
            self._on_outage(outage)


class _OutageWait:
    """The wait through one outage, from the first failure until a request succeeds."""

    def __init__(self, outages: Outages, stop: Stop, clock: Callable[[], float], patience: float) -> None:
        self._outages, self._stop, self._clock, self._patience = outages, stop, clock, patience
        self._began = clock()
        self._failures = 0  # requests in a row that failed although a health check had found the verifier ready

    def until_ready(self, failure: Exception, check_health: Callable[[], Health]) -> bool:
        """Wait until `check_health` finds the verifier ready. Returns False if the wait was stopped.

        `failure`: the error of the last request. If requests fail although the verifier is ready, each pause is longer.
        Raises `failure` when the patience is over, after too many such failures, or if it is no outage; and whatever
        `check_health` raises.
        """
        if not retries.is_checked_at_once(failure, self._failures):
            pause = retries.before_health_check(failure, self._failures, self._waited, self._patience)
            self._wait(pause, Health(False, str(failure)), failure)
        away = False
        while not self._stop.is_set():
            health = check_health()
            if health.ready:
                if retries.is_engine_fault(failure, self._failures, away):
                    raise failure
                self._failures = 1 if away else self._failures + 1
                return True
            away = True
            self._wait(retries.between_health_checks(self._waited, self._patience), health, failure)
        return False

    def _wait(self, pause: Pause, health: Health, failure: Exception) -> None:
        if pause is None:
            raise failure
        self._outages.tell(Outage(self._waited, self._patience, health.why, health.progress))
        self._stop.wait(pause)

    @property
    def _waited(self) -> float:
        return self._clock() - self._began
