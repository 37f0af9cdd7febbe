"""One request from its sending to its last token, at one node after the other if nodes are lost. Times in seconds."""

import random
from collections.abc import Callable
from typing import Protocol

from gateway.balancing import NewText
from lab.simulator.fleet.nodes import FleetNode
from lab.simulator.fleet.record import Record
from lab.simulator.fleet.settings import DeviceKind, FleetMode
from lab.simulator.fleet.text import Text
from lab.simulator.fleet.writing import FusedWriter, RemoteWriter, TargetWriter, TextWriter, VerifierAccess, WritingTask
from lab.simulator.virtual.draft_engine import Learnt
from lab.simulator.virtual.network import SIZES, Direction
from lab.simulator.virtual.world import EventLoop
from specpair.drafters.run.events import Committed

_WRITERS: dict[FleetMode, Callable[[WritingTask], TextWriter]] = {
    FleetMode.TARGET: TargetWriter,
    FleetMode.FUSED: FusedWriter,
    FleetMode.LOCKSTEP: RemoteWriter,
    FleetMode.REMOTE: RemoteWriter,
}


class Dispatcher(Protocol):
    """What users and their texts need of their fleet."""

    loop: EventLoop

    def stream(self, name: str) -> random.Random:
        """The stream of chance of this name."""

    def route(self, run: "RequestRun") -> None:
        """Begin a text, or go on with it, at a node."""


class RequestRun:
    """A request of a conversation, whose text goes on at another node when its node is lost."""

    def __init__(
        self,
        fleet: Dispatcher,
        record: Record,
        text: Text,
        new_text: NewText,
        device: DeviceKind,
        learnt: Learnt,
        rng: random.Random,
        over: Callable[["RequestRun"], None],
        failed: Callable[[], None],
    ) -> None:
        """`learnt`: what the device has from its texts before.
        `over`: called when the text is whole.
        `failed`: called when the device has given up.
        """
        self.record, self.text, self.new_text, self.device = record, text, new_text, device
        self.deadline = new_text.deadline
        self._fleet, self._learnt, self._rng = fleet, learnt, rng
        self._over, self._failed = over, failed
        self.released = 0.0  # when the device has heard that the verifier released the session of the whole text
        self._received: list[int] = []  # tokens of the output
        self._connection: VerifierAccess | None = None
        self._writer: TextWriter | None = None

    @property
    def tokens_left(self) -> int:
        """Output tokens that are not committed yet."""
        session = None if self._writer is None else self._writer.session
        committed = len(self._received) if session is None else len(session.tokens) - self.text.prompt_len
        return self.record.output_tokens - committed

    def begin(self, node: FleetNode) -> None:
        """Write the text at a node, or what is left of it."""
        node.runs[self] = None
        node.began()
        self.record.nodes.append(node.name)
        self._connection = VerifierAccess(self._fleet.loop, node, self._after, self.give_up)
        job = WritingTask(
            self._connection,
            self.device,
            self.device.network_to(node.kind),
            self._learnt,
            self.text,
            f"{self.record.conversation}/{self.record.turn}/{len(self.record.nodes)}",
            self.record.conversation,
            self.record.output_tokens,
            self._received,
            self._arrived,
            self._rng,
        )
        self._writer = _WRITERS[self.device.mode](job)
        self._writer.begin()

    def lose(self) -> None:
        """Its node is lost: half a round trip later its device asks for another one."""
        assert self._connection is not None
        half = self.device.network_to(self._connection.node.kind).rtt / 2
        self._leave()
        self._fleet.loop.at(self._fleet.loop.now + half, lambda: self._fleet.route(self))

    def abort(self) -> None:
        """Write it no longer: the simulated time is over."""
        if self._connection is not None:
            self._leave()

    def give_up(self) -> None:
        """Its device has waited too long for a verifier."""
        if self._connection is not None:
            self._leave()
        self._failed()

    def _arrived(self, committed: Committed) -> None:
        """Take in tokens that have arrived at the device."""
        self._received += [token for token, _ in committed.tokens]
        self.record.times += [self._fleet.loop.now] * len(committed.tokens)
        self.record.drafted += sum(each.judged for each in committed.rounds)
        self.record.accepted += sum(each.accepted for each in committed.rounds)

    def _after(self) -> None:
        """After each event of the text: see whether it is whole."""
        if len(self._received) == self.record.output_tokens:
            self._end()

    def _leave(self, after: float = 0.0) -> None:
        """Have its node forget it, `after` seconds later."""
        connection, writer = self._connection, self._writer
        assert connection is not None and writer is not None
        connection.closed = True
        connection.node.runs.pop(self, None)
        session = writer.session
        writer.stop()
        if session is not None:
            connection.forget(session, after)
        self._connection = self._writer = None

    def _end(self) -> None:
        """Have the verifier release the session. The device waits for its reply."""
        assert self._connection is not None
        now, network = self._fleet.loop.now, self.device.network_to(self._connection.node.kind)
        arrives = Direction(network, self._rng).arrival(now, SIZES.release)
        self.released = Direction(network, self._rng).arrival(arrives, SIZES.release_reply)
        self._leave(arrives - now)
        if self._received != self.text.tokens(self.text.prompt_len, self.text.prompt_len + len(self._received)):
            raise RuntimeError(f"the text of {self.record.conversation}, turn {self.record.turn}, is not the target's")
        self._over(self)
