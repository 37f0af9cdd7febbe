"""What one text sees of a verifier."""

from collections.abc import Callable

from lab.simulator.fleet.node import FleetNode
from lab.simulator.virtual.world import EventLoop, Submits
from specpair.engines.backend import Backend
from specpair.protocol.errors import Overloaded, SpecPairError
from verifier_server.engine.requests import Answer, Request
from verifier_server.sessions import Session


class VerifierAccess:
    """What one text sees of a node: a `ReachableVerifier`. When it is closed, nothing more happens for that text."""

    def __init__(
        self, loop: EventLoop, node: FleetNode, after: Callable[[], None], give_up: Callable[[], object]
    ) -> None:
        """`after`: called after each event of the text.
        `give_up`: called when the device waits no longer.
        """
        self.node, self.closed = node, False
        self._loop, self._verifier, self._after, self._give_up = loop, node.verifier, after, give_up

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

    def guarded(self, do: Callable[[], object]) -> Callable[[], None]:
        """What calls `do` as an event of the text, unless it is closed by then."""

        def event() -> None:
            if not self.closed:
                do()
                self._after()

        return event

    def give_up(self, error: SpecPairError) -> None:
        self._give_up()

    def forget(self, session: Session, after: float = 0.0) -> None:
        """Have the verifier forget a session `after` seconds later, unless it is lost then, with all its sessions."""
        if after:
            self._loop.at(self._loop.now + after, lambda: self.forget(session))
        elif not self._verifier.stopped:
            self._verifier.scheduler.forget(session)
            self._verifier.look()

    def submit(self, request: Request, now: float) -> None:
        """Submit a request to the verifier. Raises Overloaded."""
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
