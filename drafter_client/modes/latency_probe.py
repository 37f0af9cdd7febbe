"""Looks at the link while texts are written: in a thread and over a connection of their own, so that nobody waits."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from drafter_client.errors import DrafterError
from drafter_client.http.client import VerifierClient
from drafter_client.modes.selection import ModeSelection
from speculation.errors import SpecPairError

_PINGS = 2  # of a look: one may meet a hiccup


class LatencyProbe:
    """Begins one when it is called and one is due. From any thread."""

    def __init__(self, client: VerifierClient, chooser: ModeSelection, clock: Callable[[], float]) -> None:
        """`client`: a connection that nobody else uses; it is closed with this."""
        self._client, self._chooser, self._clock = client, chooser, clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="looking")

    def __call__(self) -> None:
        if self._chooser.look_is_due(self._clock()):
            self._thread.submit(self._look)

    def close(self) -> None:
        """Break off the one under way."""
        self._client.abort()
        self._thread.shutdown()
        self._client.close()

    def _look(self) -> None:
        found: float | None = None
        try:
            with suppress(DrafterError, SpecPairError):  # whoever writes meets it, too, and says so
                self._client.transport.connect()  # where it is not there, it takes a round trip of its own
                found = self._client.least_round_trip_ms(_PINGS)
        finally:
            self._chooser.looked(found, self._clock())
