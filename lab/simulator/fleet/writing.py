"""How one verifier and one device write a text, or the rest of one, in each mode. Times in seconds."""

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

from lab.simulator.fleet.nodes import FleetNode
from lab.simulator.fleet.settings import DeviceKind, FleetMode
from lab.simulator.fleet.text import Agreeing, Choices, Text
from lab.simulator.virtual.draft_engine import EngineDrafter, Learnt
from lab.simulator.virtual.network import SIZES, Network, TextWire, refuse, submit
from lab.simulator.virtual.rounds import VirtualMember
from lab.simulator.virtual.world import EventLoop, Submits, or_raise
from specpair.drafters.run.events import Committed
from specpair.engines.backend import Backend
from specpair.protocol.errors import Overloaded, SpecPairError
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.draft import Draft
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
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


class RemoteWriter:
    """A `TextWriter` of the modes remote and lockstep."""

    def __init__(self, job: WritingTask) -> None:
        device, node = job.device, job.connection.node
        engine = job.learnt.engine
        assert engine is not None
        self._job, self._engine = job, engine
        self._open = ExitStack()
        mechanisms = LOCKSTEP if device.mode is FleetMode.LOCKSTEP else Mechanisms()
        self._drafter = EngineDrafter(
            job.connection,
            job.prompt,
            Agreeing(Choices(job.text, device.agreement)),
            engine,
            engine.held(job.conversation),
            job.tell,
            job.connection.guarded,
            max_tokens=job.output_tokens,
            network=job.network,
            length=device.length,
            mechanisms=replace(mechanisms, trees=device.trees),
            estimates=self._open.enter_context(job.learnt.experience.text(SPEC, node.pass_times)),
            seed=job.rng.getrandbits(32),
            name=job.name,
        )
        self.session = self._drafter.session
        self.session.resume(job.received)

    def begin(self) -> None:
        self._drafter.start()

    def stop(self) -> None:
        self._open.close()
        self._engine.keep(self._job.conversation, self._drafter.held)


class TargetWriter:
    """A `TextWriter` of mode target."""

    def __init__(self, job: WritingTask) -> None:
        self._job, self._stream = job, ServerStream(job)
        self.session = job.opened()
        self._request = Request(self.session, Draft(job.known), or_raise(self._passed), until_end=True)

    def begin(self) -> None:
        self._stream.ask(self._arrive)

    def _arrive(self) -> None:
        submit(self._job.connection, self._request, self._stream.wire, self._stream.size)

    def stop(self) -> None:
        self._request.cancelled = True

    def _passed(self, answer: Answer) -> None:
        self._stream.tell(Committed(answer.position, answer.details.sourced(answer.tokens), answer.details))


class FusedWriter:
    """A `TextWriter` of mode fused."""

    def __init__(self, job: WritingTask) -> None:
        node = job.connection.node
        assert node.learnt.engine is not None and node.rounds is not None
        self.session: Session | None = None  # none while the text waits
        self._job, self._engine, self._rounds = job, node.learnt.engine, node.rounds
        self._stream, self._open = ServerStream(job), ExitStack()
        self._member: VirtualMember | None = None  # while it has a slot
        self._stopped = False
        self._refused: float | None = None  # when the device learnt that the verifier was overloaded, in seconds

    def begin(self) -> None:
        self._stream.ask(self._ask)

    def _ask(self) -> None:
        self._engine.lend(self._start)

    def _start(self) -> bool:
        if self._stopped:
            return False
        job, node = self._job, self._job.connection.node
        experience = node.learnt.experience.text(SPEC, node.pass_times, together=True)
        self.session = job.opened()
        self._member = VirtualMember(
            self.session,
            job.known,
            Agreeing(Choices(job.text, node.kind.draft_agreement)),
            self._open.enter_context(experience).acceptance,
            self._report,
            refused=self._overloaded,
            held=self._engine.held(job.conversation),
        )
        self._rounds.read(self._member)
        self._rounds.write(self._member)
        return True

    def _report(self, answer: Answer, draft: Draft) -> None:
        judged = [JudgedRound(answer.judged, answer.accepted)] if answer.judged else []
        details = answer.details
        self._stream.tell(Committed(answer.position, details.sourced(answer.tokens), details, rounds=judged))
        if answer.finish_reason is not None:
            self._over()

    def _overloaded(self, error: Overloaded) -> None:
        """Have the device come again."""
        self._over()
        begun = bool(self._job.received)
        refuse(self._job.connection, self._stream.wire, self._stream.size, error, begun, self._refused, self._again)

    def _again(self, refused: float) -> None:
        self._refused = refused
        self._ask()

    def _over(self) -> None:
        """Give the slot back: nothing more is drafted."""
        member, self._member = self._member, None
        if member is not None:
            self._rounds.leave(member)
            self._open.close()
            self._engine.keep(self._job.conversation, member.held)
            self._engine.free()

    def stop(self) -> None:
        self._stopped = True
        self._over()
