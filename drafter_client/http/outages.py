"""Waiting for a verifier that went away: which errors are an outage, how long the wait is, and who is told."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from drafter_client.errors import ConnectionLost, VerifierTimeout, VerifierUnreachable
from drafter_client.http.stop import Stop
from speculation.errors import (
    EngineError,
    ModelLoading,
    Overloaded,
    ServerError,
    SessionConflict,
    ShuttingDown,
    UnknownSession,
)

PATIENCE = 300.0  # seconds
_PAUSE = 0.25  # seconds between health checks
_LONGEST_PAUSE = 5.0  # seconds at most between attempts with a verifier that is ready and fails again and again
_MOST_FAILURES = 6  # in a row of a verifier that is ready: about 20 s
_BUSY_PATIENCE = 60.0  # seconds that a verifier may be overloaded before it has begun a text
# A session conflict in the middle of a text means that an old request arrived late, as after a broken link.
_AWAY = (
    ConnectionLost,
    VerifierUnreachable,
    VerifierTimeout,
    ModelLoading,
    ShuttingDown,
    UnknownSession,
    SessionConflict,
    Overloaded,
)

T = TypeVar("T")


class Health(NamedTuple):
    """The health of a verifier: `why` it is not ready, and the progress of loading, 0 to 1, or None if unknown."""

    ready: bool
    why: str = ""
    progress: float | None = None


class Outage(NamedTuple):
    """A wait for the verifier: seconds waited, seconds at most, the reason, and the progress of loading."""

    seconds: float
    patience: float
    why: str
    progress: float | None = None


def is_outage(error: Exception) -> bool:
    """Whether the verifier may be back soon after this error, so that the text can continue.

    A server error that the protocol does not know comes from a proxy whose verifier is gone. A verifier reports
    `EngineError` also while it shuts down; its health tells whether it does.
    """
    return isinstance(error, (*_AWAY, EngineError)) or type(error) is ServerError


class Outages:
    """Waits for one verifier, for all texts and connections of a pair. Used from any thread."""

    def __init__(
        self,
        patience: float = PATIENCE,
        on_outage: Callable[[Outage], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`patience`: seconds to wait. `on_outage` is called about once a second of waiting, by one thread at a time.
        `clock` is in seconds.
        """
        self.patience = patience
        self.stop = Stop()  # ends all waiting, now and later
        self._on_outage, self._clock = on_outage, clock
        self._telling = threading.Lock()
        self._last_told: float | None = None

    def retry(self, request: Callable[[], T], check_health: Callable[[], Health]) -> T:
        """The result of `request`, which is repeated after each outage. `check_health` asks for the verifier's health.

        Raises the last error when the wait is over or stopped.
        """
        outage: _OutageWait | None = None
        while True:
            try:
                return request()
            except Exception as error:
                if not is_outage(error):
                    raise
                failure = error
            outage = outage or self.begin(self.stop)
            if not outage.until_ready(failure, check_health):
                raise failure from None

    def begin(self, stop: Stop, *, unbegun: bool = False) -> "_OutageWait":
        """Begin a wait. `unbegun`: there is nothing of the text yet, and the verifier is only busy."""
        return _OutageWait(self, stop, self._clock, min(self.patience, _BUSY_PATIENCE) if unbegun else self.patience)

    def tell(self, outage: Outage) -> None:
        """Call `on_outage`, at most once a second."""
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
        self._failures = 0  # in a row, of a verifier that was ready

    def until_ready(self, failure: Exception, check_health: Callable[[], Health]) -> bool:
        """Wait until `check_health` finds the verifier ready. Returns False when the wait was stopped.

        A verifier that is ready and fails all the same is left alone for a growing pause. Raises `failure` when the
        patience is over, after too many such failures, or when it is no outage; and whatever `check_health` raises.
        """
        if isinstance(failure, Overloaded):  # the verifier is there, and says when to retry
            pause = float(failure.details.get("retry_after", 1))
            if self._waited + pause > self._patience:
                raise failure
            self._pause(pause, Health(False, failure.message), failure)
        elif self._failures:
            if self._failures > _MOST_FAILURES:
                raise failure
            self._pause(min(_PAUSE * 2 ** (self._failures + 1), _LONGEST_PAUSE), Health(False, str(failure)), failure)
        away = False
        while not self._stop.is_set():
            health = check_health()
            if health.ready:
                if isinstance(failure, EngineError) and not away and not self._failures:
                    raise failure  # the engine failed, and the verifier did not go away
                self._failures = 1 if away else self._failures + 1
                return True
            away = True
            self._pause(_PAUSE, health, failure)
        return False

    def _pause(self, seconds: float, health: Health, failure: Exception) -> None:
        left = self._patience - self._waited
        if left <= 0.0:
            raise failure
        self._outages.tell(Outage(self._waited, self._patience, health.why, health.progress))
        self._stop.wait(min(seconds, left))

    @property
    def _waited(self) -> float:
        return self._clock() - self._began
