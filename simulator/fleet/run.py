"""One request from its sending to its last token, at one node after the other if nodes are lost. Times in seconds."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.fleet.node import Connection, Node
from simulator.fleet.record import Record
from simulator.fleet.settings import Device, Mode
from simulator.fleet.text import Agreeing, Text
from simulator.virtual.drafter import VirtualDrafter
from simulator.virtual.world import RETRY, Network, or_raise
from specpair.balancing.candidate import NewText
from specpair.speculation.draft import Draft
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from verifier_server.engine.requests import Answer, Request
from verifier_server.sessions import Session

if TYPE_CHECKING:
    from simulator.fleet.fleet import Fleet

_GREEDY = Sampling()


class TextRun:
    """A request of a conversation, whose text goes on at another node when its node is lost."""

    def __init__(
        self,
        fleet: "Fleet",
        record: Record,
        text: Text,
        new_text: NewText,
        device: Device,
        rng: random.Random,
        over: Callable[["TextRun"], None],
    ) -> None:
        """`over`: called when the text is whole."""
        self.record, self.text, self.new_text, self.device = record, text, new_text, device
        self.deadline = new_text.deadline
        self._fleet, self._rng, self._over = fleet, rng, over
        self._received: list[int] = []  # tokens of the output
        self._connection: Connection | None = None
        self._drafter: VirtualDrafter | None = None
        self._session: Session | None = None
        self._streamed = 0.0  # when the last tokens on the stream arrive
        self._sent = 0  # output tokens that the server has put on the stream, in mode fused

    @property
    def tokens_left(self) -> int:
        """Output tokens that are not committed yet."""
        session = self._session
        committed = len(self._received) if session is None else len(session.tokens) - self.text.prompt_len
        return self.record.output_tokens - committed

    def begin(self, node: Node) -> None:
        """Write the text at a node, or what is left of it."""
        node.runs[self] = None
        node.began()
        self.record.nodes.append(node.name)
        self._connection = connection = Connection(self._fleet.loop, node, self._after)
        prompt = self.text.tokens(0, self.text.prompt_len)
        name = f"{self.record.conversation}/{self.record.turn}/{len(self.record.nodes)}"
        if self.device.mode is Mode.TARGET:
            self._session = self._decode(connection, name, prompt)
        else:
            self._drafter = drafter = self._made(connection, name, prompt)
            self._session, self._sent = drafter.session, len(self._received)
            self._session.resume(self._received)
            if self.device.mode is Mode.FUSED:
                self._carry(drafter.start)
            else:
                drafter.start()

    def lose(self) -> None:
        """Its node is lost: half a round trip later its device asks for another one."""
        self._take()
        self._leave()
        self._fleet.loop.at(self._fleet.loop.now + self.device.network.rtt / 2, lambda: self._fleet.route(self))

    def _made(self, connection: Connection, name: str, prompt: list[int]) -> VirtualDrafter:
        mode, node = self.device.mode, connection.node
        if mode is Mode.FUSED:
            network, steps = Network(), node.drafted_in
        else:
            cost = self.device.cost
            assert cost is not None
            network, steps = self.device.network, lambda branches: cost.seconds([(1, len(prompt))] * branches)
        lockstep = mode is Mode.LOCKSTEP
        return VirtualDrafter(
            connection,
            prompt,
            _GREEDY,
            Agreeing(self.text),
            steps,
            max_tokens=self.record.output_tokens,
            network=network,
            length=self.device.length if lockstep else None,
            mechanisms=LOCKSTEP if lockstep else Mechanisms(),
            pass_times=node.pass_times,
            seed=self._rng.getrandbits(32),
            name=name,
        )

    def _decode(self, connection: Connection, name: str, prompt: list[int]) -> Session:
        """Have the target write the text alone."""
        limit = len(prompt) + self.record.output_tokens
        ends = connection.backend.vocabulary.ends
        session = Session(name, prompt, len(prompt), TextSpec.of(_GREEDY), limit, ends)
        session.resume(self._received)

        def passed(answer: Answer) -> None:
            self._stream(session.tokens[answer.position : answer.total_tokens])

        request = Request(session, Draft(len(session.tokens)), or_raise(passed), until_end=True)
        self._carry(lambda: connection.submit(request, connection.now))
        return session

    # The network between the device and a server that writes by itself.

    def _carry(self, do: Callable[[], object], retry: float = RETRY) -> None:
        """Call `do` when a message sent now has arrived at the server."""
        connection = self._connection
        assert connection is not None
        takes = self.device.network.takes(connection.now, self._rng)
        if takes is None:
            connection.at(connection.now + retry, lambda: self._carry(do, 2 * retry))
        else:
            connection.at(connection.now + takes, do)

    def _stream(self, tokens: list[int]) -> None:
        """Send tokens to the device. They keep their order; lost ones are sent again."""
        connection = self._connection
        assert connection is not None
        self._streamed = max(self._streamed, self.device.network.arrival(connection.now, self._rng))
        connection.at(self._streamed, lambda: self._receive(tokens, connection.now))

    def _receive(self, tokens: list[int], now: float) -> None:
        self._received += tokens
        self.record.times += [now] * len(tokens)

    def _after(self) -> None:
        """After each event of the text: see whether it is whole."""
        drafter = self._drafter
        if drafter is not None and drafter.controller is not None:
            if self.device.mode is Mode.FUSED:
                new = drafter.controller.known[self.text.prompt_len + self._sent :]
                if new:
                    self._sent += len(new)
                    self._stream(new)
            elif drafter.finished:
                self._take()
        if len(self._received) == self.record.output_tokens:
            self._end()

    def _take(self) -> None:
        """Take over what a drafter at the device has brought, and count its draft tokens."""
        drafter = self._drafter
        if drafter is None or drafter.controller is None:
            return
        course = drafter.course
        self.record.drafted += course.judged
        self.record.accepted += course.accepted
        if self.device.mode is Mode.FUSED:
            return
        brought = drafter.controller.known[self.text.prompt_len + len(self._received) :]
        self.record.times += [course.opened] * (len(brought) - len(course.times)) + course.times
        self._received += brought
        self._drafter = None

    def _leave(self) -> None:
        connection = self._connection
        assert connection is not None and self._session is not None
        connection.closed = True
        connection.node.runs.pop(self, None)
        if connection.node.up:
            connection.node.verifier.scheduler.forget(self._session)
            connection.node.verifier.look()
        self._connection = self._drafter = self._session = None

    def _end(self) -> None:
        if self._drafter is not None:
            self._take()
        self._leave()
        if self._received != self.text.tokens(self.text.prompt_len, self.text.prompt_len + len(self._received)):
            raise RuntimeError(f"the text of {self.record.conversation}, turn {self.record.turn}, is not the target's")
        self._over(self)
