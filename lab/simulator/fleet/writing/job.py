"""What one verifier and one device write: a text, or the rest of one. Times in seconds."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lab.simulator.fleet.device_pool import Learnt
from lab.simulator.fleet.settings import DeviceKind
from lab.simulator.fleet.text import Text
from lab.simulator.fleet.writing.connection import VerifierAccess
from lab.simulator.virtual.message_sizes import SIZES
from lab.simulator.virtual.network import Network, TextWire
from specpair.drafters.run.events import Committed
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from verifier_server.sessions import Session

SPEC = TextSpec.of(Sampling())  # of all texts


@dataclass(slots=True)
class WritingTask:
    """A text that is to be written. `tell`: takes the tokens as they arrive at the device."""

    connection: VerifierAccess
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

    @property
    def prompt(self) -> list[int]:
        return self.text.tokens(0, self.text.prompt_len)

    @property
    def known(self) -> int:
        """Tokens of prompt and output that the device has."""
        return self.text.prompt_len + len(self.received)

    def opened(self) -> Session:
        """A session for it at the verifier."""
        ends, limit = self.connection.backend.vocabulary.ends, self.text.prompt_len + self.output_tokens
        session = Session(self.name, self.prompt, self.text.prompt_len, SPEC, limit, ends)
        session.resume(self.received)
        return session


class TextWriter(Protocol):
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
        """Write no more: the text is whole, or its verifier is lost."""


class ServerStream:
    """What a device asks of a server that writes by itself, and what that streams back."""

    def __init__(self, job: WritingTask) -> None:
        self.wire, self.size = TextWire(job.connection, job.network, job.rng), SIZES.generate.of(job.known)
        self._job, self._opens = job, SIZES.generate_opened

    def ask(self, do: Callable[[], object]) -> None:
        """Call `do` when the request, of `size` bytes, has arrived at the server."""
        self.wire.up(self.size, do)

    def tell(self, committed: Committed) -> None:
        """Send tokens to the device."""
        size, self._opens = SIZES.generated.of(len(committed.tokens)) + self._opens, 0.0
        self.wire.stream(size, lambda: self._job.tell(committed))
