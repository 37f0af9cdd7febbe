"""Carries the messages of a text between its device and its verifier, on the clock of the simulation."""

import random
from collections.abc import Callable
from functools import partial

from drafter_client.http import retries
from lab.simulator.virtual.message_sizes import SIZES
from lab.simulator.virtual.network import Direction, Network
from lab.simulator.virtual.world import Place
from specpair.protocol.errors import Overloaded
from verifier_server.engine.requests import Request


class Wire:
    """The link of a device while it has a text written."""

    def __init__(
        self,
        place: Place,
        network: Network,
        rng: random.Random,
        overhead: float = 0.0,
    ) -> None:
        """`overhead`: seconds that an exchange takes beside the network."""
        self.upwards, self.downwards = Direction(network, rng), Direction(network, rng)
        self.streamed = 0.0  # when the last event on the stream arrives, in seconds
        self._place, self._half = place, overhead / 2

    def up(self, size: float, do: Callable[[], object]) -> None:
        """Call `do` when a message of `size` bytes that the device sends now has arrived at the verifier."""
        self._place.at(self.upwards.arrival(self._place.now, size) + self._half, do)

    def down(self, size: float, do: Callable[[], object]) -> None:
        """Call `do` when a message that the verifier sends now has arrived at the device."""
        self._place.at(self.downwards.arrival(self._place.now, size) + self._half, do)

    def stream(self, size: float, do: Callable[[], object]) -> None:
        """Call `do` when an event that the verifier puts on the stream now has arrived. Events keep their order."""
        arrival = self.downwards.arrival(self._place.now, size) + self._half
        if arrival > self.streamed:
            self.streamed = arrival
        self._place.at(self.streamed, do)


def submit(place: Place, request: Request, wire: Wire, size: float, refused: float | None = None) -> None:
    """Submit a request of `size` bytes that has arrived. While the verifier is overloaded, it comes again: see
    `refuse`, also for `refused`.
    """
    try:
        place.scheduler.submit(request, place.now)
    except Overloaded as error:
        begun = request.draft.position > request.session.prompt_len
        refuse(place, wire, size, error, begun, refused, partial(submit, place, request, wire, size))


def refuse(
    place: Place,
    wire: Wire,
    size: float,
    error: Overloaded,
    begun: bool,
    refused: float | None,
    again: Callable[[float], object],
) -> None:
    """Send a refusal back. The request, of `size` bytes, comes again after as long as `error` asks for, until the
    device gives up, as `drafter_client` does.

    `begun`: whether the device has a part of the text.
    `refused`: when the device learnt of the first refusal, in seconds; None: there is none yet.
    `again`: called when the request has come again, with the next `refused`.
    """

    def heard() -> None:
        first = place.now if refused is None else refused
        patience = retries.outage_patience(retries.PATIENCE, error, begun)
        pause = retries.before_health_check(error, 0, place.now - first, patience)
        if pause is None:
            place.give_up(error)
        else:
            place.at(place.now + pause, lambda: wire.up(size, partial(again, first)))

    wire.down(SIZES.refusal, heard)
