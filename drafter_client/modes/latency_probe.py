"""Measure the round trip while texts are generated, in a separate thread and over a separate connection."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from drafter_client.errors import DrafterError
from drafter_client.http.client import VerifierClient
from drafter_client.modes.selection import ModeSelection
from specpair.protocol.errors import SpecPairError

_PINGS = 2  # round trips measured in each probe, as a single one may be delayed; the shortest counts


class LatencyProbe:
    """Calling this object measures the link if that is due. May be called from any thread; does not wait."""

    def __init__(self, client: VerifierClient, selection: ModeSelection, clock: Callable[[], float]) -> None:
        """`client`: a connection for the probes alone, which `close` closes.
        `clock`: returns seconds.
        """
        self._client, self._selection, self._clock = client, selection, clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="latency-probe")

    def __call__(self) -> None:
        if self._selection.probe_is_due(self._clock()):
            self._thread.submit(self._probe)

    def close(self) -> None:
        """Abort the probe under way, and close the connection."""
        self._client.abort()
        self._thread.shutdown()
        self._client.close()

    def _probe(self) -> None:
        round_trip: float | None = None
        try:
            with suppress(DrafterError, SpecPairError):  # the text that is being generated raises the same error
                self._client.connection.connect()  # a new connection takes a round trip, which must not be measured
                round_trip = self._client.least_round_trip(_PINGS)
        finally:
            self._selection.probed(round_trip, self._clock())
