"""A verifier that goes away and comes back: which errors mean that, how long it is waited for, and who is told."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from drafter_client.errors import ConnectionLost, VerifierTimeout, VerifierUnreachable
from drafter_client.generation.text_session import Stop
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
_PAUSE = 0.25  # seconds between looks
_LONGEST_PAUSE = 5.0  # seconds between tries at a verifier that is ready and fails again and again
_IN_VAIN = 6  # such tries in a row: some 20 s
_BUSY = 60.0  # seconds that a verifier may be overloaded before it has begun a text
# A session conflict in the middle of a text comes of an old request that arrived late, over a link that healed, say.
_GONE = (
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
    """How a verifier is: `why` it is not ready, and how far loading is, 0 to 1, where that is told."""

    ready: bool
    why: str = ""
    progress: float | None = None


class Outage(NamedTuple):
    """Told while a verifier is waited for: for how long by now, of how many seconds at most, and why."""

    seconds: float
    patience: float
    why: str
    progress: float | None = None


def is_outage(error: Exception) -> bool:
    """Whether a verifier that fails like this may be back soon, and a text then goes on.

    A server error that is none of the protocol's comes from a proxy whose verifier is gone. `EngineError` is one that
    a verifier gives also when it ends; whether it has, its health tells.
    """
    return isinstance(error, (*_GONE, EngineError)) or type(error) is ServerError


class Outages:
    """Waits for one verifier, for all texts and connections of a pair. From any thread."""

    def __init__(
        self,
        patience: float = PATIENCE,
        on_outage: Callable[[Outage], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`patience`: seconds to wait. `on_outage` is called about once a second meanwhile, by one thread at a time.
        `clock` in seconds."""
        self.patience = patience
        self.stop = Stop()  # ends all waiting, now and later
        self._on_outage, self._clock = on_outage, clock
        self._telling = threading.Lock()
        self._told: float | None = None

    def through(self, do: Callable[[], T], look: Callable[[], Health]) -> T:
        """What `do` returns, which is done again after an outage."""
        outage: _Waiting | None = None
        while True:
            try:
                return do()
            except Exception as error:
                if not is_outage(error):
                    raise
                failure = error
            outage = outage or self.begin(self.stop)
            if not outage.until_ready(failure, look):
                raise failure from None

    def begin(self, stop: Stop, *, unbegun: bool = False) -> "_Waiting":
        """An outage begins. `unbegun`: nothing of the text is there, and the verifier is only busy."""
        return _Waiting(self, stop, self._clock, min(self.patience, _BUSY) if unbegun else self.patience)

    def tell(self, outage: Outage) -> None:
        """Tell it to whoever wants to know, unless that was done within the last second."""
        with self._telling:
            now = self._clock()
            if self._on_outage is None or (self._told is not None and now - self._told < 1.0):
                return
            self._told = now
            self._on_outage(outage)


class _Waiting:
    """One outage, from the failure that showed it until something goes on."""

    def __init__(self, outages: Outages, stop: Stop, clock: Callable[[], float], patience: float) -> None:
        self._outages, self._stop, self._clock, self._patience = outages, stop, clock, patience
        self._began = clock()
        self._in_vain = 0  # failures in a row of a verifier that was ready

    def until_ready(self, failure: Exception, look: Callable[[], Health]) -> bool:
        """Wait until `look` finds the verifier ready; False when the waiting was stopped.

        One that is ready and fails all the same is left alone for a while, which grows. Raises `failure` when the
        patience is over or this goes on and on, or when it is no outage; and what `look` raises.
        """
        if isinstance(failure, Overloaded):  # it is there, and says when to come back
            wanted = float(failure.details.get("retry_after", 1))
            if self._waited + wanted > self._patience:
                raise failure
            self._pause(wanted, Health(False, failure.message), failure)
        elif self._in_vain:
            if self._in_vain > _IN_VAIN:
                raise failure
            self._pause(min(_PAUSE * 2 ** (self._in_vain + 1), _LONGEST_PAUSE), Health(False, str(failure)), failure)
        away = False
        while not self._stop.is_set():
            health = look()
            if health.ready:
                if isinstance(failure, EngineError) and not away and not self._in_vain:
                    raise failure  # its engine failed, and it did not go away
                self._in_vain = 1 if away else self._in_vain + 1
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
