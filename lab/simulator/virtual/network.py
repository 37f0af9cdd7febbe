"""A link in virtual time: the sizes of messages, their arrival times, the wire of a text. Times in seconds."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final, NamedTuple

from drafter_client.http import retries
from lab.simulator.virtual.world import ProcessQueue, ReachableVerifier
from specpair.protocol.errors import Overloaded
from verifier_server.engine.arrived_drafts import Request

DIGITS = 4  # of a token id: 3.4 were measured with the 152,000 ids of Qwen2.5, 4.5 with the 262,000 of Gemma 3


class MessageSize(NamedTuple):
    """Bytes of a kind of message. `ids`: how often it has the id of each token. `more`: further bytes of a token."""

    empty: int  # of one without tokens, the head included
    ids: int
    more: int = 0

    def of(self, tokens: int, digits: int = DIGITS) -> float:
        """The bytes of a message with these tokens, whose ids have `digits` digits."""
        return float(self.empty + tokens * (self.ids * (digits + 1) + self.more))


class SIZES:
    """The sizes of all messages."""

    prefill: Final = MessageSize(280, 1)  # tokens of the prompt, and of the output that the device has
    prefill_reply: Final = MessageSize(960, 1)  # tokens of the prompt, which the reply repeats
    prefill_streamed: Final = MessageSize(1051, 1)  # the same as the first event of the session's stream
    verify: Final = MessageSize(241, 1)  # tokens of the draft
    verify_tree: Final = MessageSize(259, 1, 2)  # the same where it is a tree
    verify_reply: Final = MessageSize(408, 2, 1)  # committed tokens
    verify_tree_reply: Final = MessageSize(426, 2, 3)
    streamed: Final = MessageSize(75, 1, 1)  # tokens of an event of a session's stream
    generate: Final = MessageSize(271, 1)  # tokens as of `prefill`
    generated: Final = MessageSize(73, 1, 5)  # tokens of an event of `/generate`, with four characters of text for each
    generate_opened: Final = 536.0  # the head of the stream of `/generate`, and its first event
    refusal: Final = 326.0  # by an overloaded verifier
    listen: Final = 27.0  # of the header of a prefill that asks for the session's stream behind the reply
    release: Final = 220.0  # of a request that releases a session
    release_reply: Final = 222.0


@dataclass(frozen=True, slots=True)
class Network:
    """The link between a device and a verifier, the same both ways. Nothing is shared between devices."""

    rtt: float = 0.0
    jitter: float = 0.0  # mean of the random delay that is added to each message
    loss: float = 0.0  # share of messages, 0 to 1, that are lost with their connection, and sent again
    outages: tuple[tuple[float, float], ...] = ()  # (start, end): every message sent in between is lost
    bandwidth: float = inf  # bytes a second each way: a device's messages follow one another

    def takes(self, now: float, rng: random.Random) -> float | None:
        """Seconds that a message sent at `now` takes, without its bytes; None: it is lost."""
        if any(start <= now < end for start, end in self.outages) or rng.random() < self.loss:
            return None
        return self.rtt / 2 + (rng.expovariate(1.0 / self.jitter) if self.jitter else 0.0)

    @property
    def even(self) -> bool:
        """Whether all messages take equally long, apart from their bytes."""
        return not (self.jitter or self.loss or self.outages)


class Direction:
    """One direction of a device's link, which carries one message after the other."""

    __slots__ = ("_even", "_free", "_network", "_rng")

    def __init__(self, network: Network, rng: random.Random) -> None:
        self._network, self._rng, self._even = network, rng, network.even
        self._free = 0.0  # when the last byte of all messages is under way

    def arrival(self, now: float, size: float) -> float:
        """When a message of `size` bytes that is sent at `now` has arrived.

        It is sent again while it is lost, by the pauses of the client that ships. Then others do not wait for it.
        """
        network = self._network
        takes_bytes = size / network.bandwidth
        self._free = sent = (self._free if self._free > now else now) + takes_bytes
        if self._even:
            return sent + network.rtt / 2
        pause = retries.FIRST_PAUSE
        while (takes := network.takes(now, self._rng)) is None:
            now, pause = now + pause, min(2 * pause, retries.LONGEST_PAUSE)
            sent = now + takes_bytes
        return sent + takes


class TextWire:
    """The link of a device while it has a text written."""

    def __init__(
        self,
        place: ReachableVerifier,
        network: Network,
        rng: random.Random,
        overhead: float = 0.0,
        processes: Sequence[ProcessQueue] = (),
    ) -> None:
        """`overhead`: seconds that an exchange takes beside the network.
        `processes`: of the verifier, in the order in which they handle what comes in. What goes out passes them in
        reverse.
        """
        self.upwards, self.downwards = Direction(network, rng), Direction(network, rng)
        self.streamed = 0.0  # when the last event on the stream arrives, in seconds
        self._place, self._half, self._processes = place, overhead / 2, processes

    def up(self, size: float, do: Callable[[], object]) -> None:
        """Call `do` when the verifier has handled a message of `size` bytes that the device sends now."""
        arrival = self.upwards.arrival(self._place.now, size) + self._half
        self._place.at(arrival, lambda: self._handle(self._processes, do))

    def down(self, size: float, do: Callable[[], object]) -> None:
        """Call `do` when a message that the verifier has to send now has arrived at the device."""
        self.prepare(lambda: self._place.at(self.downwards.arrival(self._place.now, size) + self._half, do))

    def prepare(self, send: Callable[[], object]) -> None:
        """Call `send` when the verifier has handled a message that goes out. Messages keep their order."""
        self._handle(self._processes[::-1], send)

    def _handle(self, processes: Sequence[ProcessQueue], then: Callable[[], object]) -> None:
        if processes:
            self._place.at(processes[0].done(self._place.now), lambda: self._handle(processes[1:], then))
        else:
            then()

    def stream(self, size: float, do: Callable[[], object]) -> None:
        """Call `do` when an event that leaves the verifier now has arrived. Events keep their order."""
        arrival = self.downwards.arrival(self._place.now, size) + self._half
        if arrival > self.streamed:
            self.streamed = arrival
        self._place.at(self.streamed, do)


def submit(
    place: ReachableVerifier, request: Request, wire: TextWire, size: float, refused: float | None = None
) -> None:
    """Submit a request of `size` bytes that has arrived. While the verifier is overloaded, it comes again: see
    `refuse`, also for `refused`.
    """
    try:
        place.scheduler.submit(request, place.now)
    except Overloaded as error:
        begun = request.draft.position > request.session.prompt_len
        refuse(place, wire, size, error, begun, refused, partial(submit, place, request, wire, size))


def refuse(
    place: ReachableVerifier,
    wire: TextWire,
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
