"""One request at its verifier, from its sending to its last token. Times in seconds."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.devices import DrafterKeys
from lab.simulator.fleet.nodes import FleetNode
from lab.simulator.fleet.record import Record
from lab.simulator.fleet.text import Text
from lab.simulator.virtual.draft_engine import Learnt
from lab.simulator.virtual.network import SIZES, Direction, Network
from lab.simulator.virtual.world import EventLoop, ProcessQueue, Submits
from specpair.drafters.run.events import Committed
from specpair.engines.backend import Backend
from specpair.protocol.errors import Overloaded, SpecPairError
from specpair.speculation.policy.modes.selector import ModeSelector
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.sessions import Session


class TextWriter(Protocol):
    """Writes the text of a request."""

    @property
    def session(self) -> Session | None:
        """Its session at the verifier; None: there is none yet."""

    def begin(self) -> None:
        """Begin to write."""

    def stop(self) -> None:
        """Stop writing: the text is complete, or its device has given up."""


SPEC = TextSpec.of(Sampling())  # of all texts


@dataclass(slots=True)
class FleetDevice:
    """A device. `kind`: None, where each user has one that does not draft."""

    kind: DrafterKeys | None
    learnt: Learnt
    selectors: dict[str, ModeSelector] = field(default_factory=dict)  # of the mode auto, by the name of the node
    connected: dict[str, tuple[ProcessQueue, ...]] = field(default_factory=dict)  # processes, by the name of the node


class FleetAround(Protocol):
    """The interface of the fleet for a request."""

    loop: EventLoop
    configuration: Configuration

    def stream(self, name: str) -> random.Random:
        """The random stream of this name."""

    def network(self, device: FleetDevice, node: FleetNode) -> Network:
        """The link between the two."""


class RequestRun:
    """A request that is under way: for its drafter, a `ReachableVerifier`.

    Its text is written in one stretch, or in several in turn. When the next one begins, nothing more happens of the one
    before, and when the request is closed, nothing more happens for its text.
    """

    def __init__(
        self,
        fleet: FleetAround,
        device: FleetDevice,
        node: FleetNode,
        record: Record,
        text: Text,
        deadline: float,
        write: Callable[["RequestRun", Configuration], TextWriter],
        over: Callable[["RequestRun"], None],
        failed: Callable[[], None],
    ) -> None:
        """`write`: makes what writes the text.
        `over`: called when the text is whole.
        `failed`: called when the device has given up.
        """
        self.device, self.node, self.record, self.text, self.deadline = device, node, record, text, deadline
        self.name = f"{record.conversation}/{record.turn}"
        self.network, self.rng = fleet.network(device, node), fleet.stream(f"{self.name}/link")
        self.released = 0.0  # when the device has heard that the verifier released the session of the whole text
        self._loop, self._verifier, self._over, self._failed = fleet.loop, node.verifier, over, failed
        self._received: list[int] = []  # tokens of the output
        self._closed, self._stretch = False, 0
        self._before: Session | None = None  # of the last stretch, until that of the present one takes its slot
        self.heard: Callable[[Committed], object] = lambda committed: None  # called with what has arrived
        if node.name not in device.connected:
            device.connected[node.name] = node.connect(fleet.stream(f"{self.name}/worker"))
        self.processes = device.connected[node.name]  # that handle the messages
        record.nodes.append(node.name)
        node.began(self)
        self._writer = write(self, fleet.configuration)
        self._writer.begin()

    @property
    def known(self) -> list[int]:
        """The prompt and the tokens that the device has."""
        return self.text.tokens(0, self.text.prompt_len + len(self._received))

    @property
    def left(self) -> int:
        """Output tokens that the device has not."""
        return self.record.output_tokens - len(self._received)

    @property
    def tokens_left(self) -> int:
        """Output tokens that are not committed yet."""
        session = self._writer.session
        return self.record.output_tokens - (0 if session is None else len(session.tokens) - self.text.prompt_len)

    def opened(self) -> Session:
        """A session for the present stretch at the verifier."""
        return Session(
            self.name, self.known, self.text.prompt_len, SPEC, self.record.text_tokens, self.backend.vocabulary.ends
        )

    def tell(self, committed: Committed) -> None:
        """Take in tokens that have arrived at the device."""
        self._received += [token for token, _ in committed.tokens]
        self.record.times += [self.now] * len(committed.tokens)
        self.record.drafted += sum(each.judged for each in committed.rounds)
        self.record.accepted += sum(each.accepted for each in committed.rounds)
        self.heard(committed)

    def next_stretch(self) -> None:
        """End the present stretch, whose writer was stopped."""
        self._stretch, self._before = self._stretch + 1, self._writer.session or self._before

    def take_over(self, session: Session) -> None:
        """Have the session get the slot of the last stretch, if it has come to the verifier as the first of its own."""
        before, self._before = self._before, None
        if before is not None:
            self._verifier.scheduler.replace(before, session)

    def close(self, after: float = 0.0) -> None:
        """Have the verifier forget the request, `after` seconds later."""
        self._closed = True
        self.node.ended(self)
        session = self._before or self._writer.session
        self._writer.stop()
        if session is not None and after:
            self._loop.at(self.now + after, lambda: self._release(session))
        elif session is not None:
            self._forget(session)

    def _release(self, session: Session) -> None:
        """Take the processes' time for the request and its reply, for which nobody waits, and forget the session."""
        for each in self.processes * 2:
            each.done(self.now)
        self._forget(session)

    def _forget(self, session: Session) -> None:
        self._verifier.scheduler.forget(session)
        self._verifier.look()

    def _end(self) -> None:
        """Have the verifier release the session. The device waits for its reply."""
        arrives = Direction(self.network, self.rng).arrival(self.now, SIZES.release)
        self.released = Direction(self.network, self.rng).arrival(arrives, SIZES.release_reply)
        self.close(arrives - self.now)
        if self._received != self.text.tokens(self.text.prompt_len, self.text.prompt_len + len(self._received)):
            raise RuntimeError(f"the text of {self.record.conversation}, turn {self.record.turn}, is not the target's")
        self._over(self)

    # The verifier, as the drafter reaches it.

    @property
    def now(self) -> float:
        return self._loop.now

    @property
    def backend(self) -> Backend:
        return self._verifier.backend

    @property
    def scheduler(self) -> Submits:
        return self

    @property
    def max_drafts(self) -> int:
        return self._verifier.scheduler.max_drafts

    def at(self, when: float, do: Callable[[], object]) -> None:
        """Call `do` at time `when`, unless the stretch is over by then."""
        self._loop.at(when, self.guarded(do))

    def guarded(self, do: Callable[[], object]) -> Callable[[], None]:
        """A function that calls `do` as an event of the text, unless the present stretch is over by then."""
        stretch = self._stretch

        def event() -> None:
            if not self._closed and stretch == self._stretch:
                do()
                if len(self._received) == self.record.output_tokens:
                    self._end()

        return event

    def give_up(self, error: SpecPairError) -> None:
        """The device has waited too long for an overloaded verifier."""
        self.close()
        self._failed()

    def submit(self, request: Request, now: float) -> None:
        """Submit a request to the verifier. Raises Overloaded."""
        done, stretch = request.done, self._stretch
        self.take_over(request.session)

        def unless_over(result: Answer | SpecPairError) -> None:
            if not self._closed and stretch == self._stretch:
                done(result)

        request.done = unless_over
        try:
            self._verifier.scheduler.submit(request, now)
        except Overloaded:
            request.done = done
            raise
        self._verifier.look()
