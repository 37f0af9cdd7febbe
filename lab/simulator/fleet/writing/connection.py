"""What one text sees of a verifier."""

import random
from collections.abc import Callable

from lab.simulator.fleet.node import Node
from lab.simulator.virtual.network import Network
from lab.simulator.virtual.wire import Wire, submit
from lab.simulator.virtual.world import EventLoop, Submits
from specpair.engines.backend import Backend
from specpair.protocol.errors import Overloaded, SpecPairError
from verifier_server.engine.requests import Answer, Request
from verifier_server.sessions import Session


class Connection:
    """What one text sees of a node: a `Place`. When it is closed, nothing more happens for that text."""

    def __init__(self, loop: EventLoop, node: Node, after: Callable[[], None], give_up: Callable[[], object]) -> None:
        """`after`: called after each event of the text.
        `give_up`: called when the device waits no longer.
        """
        self.node, self.closed = node, False
        self.at_first: Callable[[], object] = lambda: None  # called when its first request has arrived
        self._loop, self._verifier, self._after, self._give_up = loop, node.verifier, after, give_up
        self._asked = False  # whether a request has arrived

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
        """Call `do` at time `when`, unless it is closed by then."""
        self._loop.at(when, self.guarded(do))

    def at_regardless(self, when: float, do: Callable[[], object]) -> None:
        """Call `do` at time `when`, also if it is closed by then; the text is not looked at."""
        self._loop.at(when, do)

    def guarded(self, do: Callable[[], object]) -> Callable[[], None]:
        """What calls `do` as an event of the text, unless it is closed by then."""

        def event() -> None:
            if not self.closed:
                do()
                self._after()

        return event

    def later(self, do: Callable[[], object], seconds: float) -> None:
        """Call `do` after `seconds`, also if it is closed by then."""
        self._loop.at(self._loop.now + seconds, do)

    def give_up(self, error: SpecPairError) -> None:
        self._give_up()

    def another(self) -> "Connection":
        """A second one for the same text."""
        other = Connection(self._loop, self.node, self._after, self._give_up)
        other._asked = self._asked
        return other

    def forget(self, session: Session, after: float = 0.0) -> None:
        """Have the verifier forget a session `after` seconds later, unless it is lost then, with all its sessions."""
        if after:
            self._loop.at(self._loop.now + after, lambda: self.forget(session))
        elif not self._verifier.stopped:
            self.node.loaded.pop(session.id, None)
            self._verifier.scheduler.forget(session)
            self._verifier.look()

    def read_elsewhere(self, session: Session, then: Callable[[], object]) -> bool:
        """Whether another verifier reads the prompt, where the request that has arrived is the first; `then` is called
        when the KV cache is here."""
        self.at_first()
        self.at_first = lambda: None
        first, self._asked = not self._asked, True
        if not first or self.node.prefill is None:
            return False
        self.node.prefill(session.id, [*session.tokens], self.guarded(then))
        return True

    def submit(self, request: Request, now: float) -> None:
        """Submit a request to the verifier. Raises Overloaded."""
        if self.read_elsewhere(
            request.session, lambda: submit(self, request, Wire(self, Network(), random.Random(0)), 0.0)
        ):
            return
        done = request.done

        def unless_closed(result: Answer | SpecPairError) -> None:
            if not self.closed:
                done(result)

        request.done = unless_closed
        try:
            self._verifier.scheduler.submit(request, now)
        except Overloaded:
            request.done = done
            raise
        self._verifier.look()
