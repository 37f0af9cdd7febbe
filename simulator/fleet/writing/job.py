"""What one verifier and one device write: a text, the rest of one, or a stretch of it. Times in seconds."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from simulator.drafting.learnt import Learnt
from simulator.fleet.settings import DeviceKind
from simulator.fleet.text import Text
from simulator.fleet.writing.connection import Connection
from simulator.virtual.timeline import UNTOLD, Untold, What
from simulator.virtual.world import RETRY, Network
from specpair.drafters.run.events import Committed
from verifier_server.sessions import Session


@dataclass(slots=True)
class Job:
    """A text that is to be written. `tell`: takes the tokens as they arrive at the device."""

    connection: Connection
    device: DeviceKind
    network: Network
    learnt: Learnt
    text: Text
    name: str  # of its session
    conversation: str
    output_tokens: int
    received: list[int]  # the output so far, as the device has it
    tell: Callable[[Committed], object]
    rng: random.Random
    timeline: Untold = UNTOLD
    session: Session | None = None  # which the stretch before has left at the verifier

    @property
    def prompt(self) -> list[int]:
        return self.text.tokens(0, self.text.prompt_len)

    @property
    def known(self) -> int:
        """Tokens of prompt and output that the device has."""
        return self.text.prompt_len + len(self.received)


class Writer(Protocol):
    """Writes a job."""

    @property
    def session(self) -> Session | None:
        """Its session at the verifier; None: there is none yet."""

    @property
    def server_writes(self) -> bool:
        """Whether the server writes by itself: then it learns at once that the device is gone."""

    def begin(self) -> None:
        """Begin to write."""

    def stop(self) -> None:
        """Write no more: the text is whole, its verifier is lost, or another writer goes on with it."""


class Wire:
    """Carries what a device asks of a server that writes by itself, and what that streams back."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._streamed = 0.0  # when the last tokens on the stream arrive

    def carry(self, do: Callable[[], object], retry: float = RETRY) -> None:
        """Call `do` when a message sent now has arrived at the other end."""
        connection = self._job.connection
        takes = self._job.network.takes(connection.now, self._job.rng)
        if takes is None:
            connection.at(connection.now + retry, lambda: self.carry(do, 2 * retry))
        else:
            connection.at(connection.now + takes, do)

    def stream(self, committed: Committed) -> None:
        """Send tokens to the device. They keep their order; lost ones are sent again."""
        job = self._job
        self._streamed = max(self._streamed, job.network.arrival(job.connection.now, job.rng))
        job.connection.at(self._streamed, job.timeline.until(What.DOWN, lambda: job.tell(committed)))
