"""A link in virtual time: when a message that is sent now arrives. Pure. Times in seconds."""

import random
from dataclasses import dataclass
from math import inf

from drafter_client.http.retries import FIRST_PAUSE, LONGEST_PAUSE


@dataclass(frozen=True, slots=True)
class Network:
    """The link between a device and a verifier, the same both ways. Nothing is shared between devices."""

    rtt: float = 0.0
    jitter: float = 0.0  # mean of the random delay that is added to each message
    loss: float = 0.0  # share of messages, 0 to 1, that are lost with their connection, and sent again
    outages: tuple[tuple[float, float], ...] = ()  # (start, end): every message sent in between is lost
    bandwidth: float = inf  # bytes a second each way: a device's messages follow one another
    recorded: tuple[float, ...] = ()  # round trips: each message has one of them; `rtt` is then their median

    def takes(self, now: float, rng: random.Random) -> float | None:
        """Seconds that a message sent at `now` takes, without its bytes; None: it is lost."""
        if any(start <= now < end for start, end in self.outages) or rng.random() < self.loss:
            return None
        if self.recorded:
            return rng.choice(self.recorded) / 2
        return self.rtt / 2 + (rng.expovariate(1.0 / self.jitter) if self.jitter else 0.0)

    @property
    def even(self) -> bool:
        """Whether all messages take equally long, but for their bytes."""
        return not (self.jitter or self.loss or self.outages or self.recorded)


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
        pause = FIRST_PAUSE
        while (takes := network.takes(now, self._rng)) is None:
            now, pause = now + pause, min(2 * pause, LONGEST_PAUSE)
            sent = now + takes_bytes
        return sent + takes
