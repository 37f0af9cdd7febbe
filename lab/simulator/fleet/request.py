"""One request at its verifier, from its sending to its last token, in each mode. Times in seconds."""

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.devices import DrafterKeys
from lab.simulator.fleet.nodes import FleetNode
from lab.simulator.fleet.record import Record
from lab.simulator.fleet.text import Agreeing, Choices, Text
from lab.simulator.virtual.draft_engine import EngineDrafter, Learnt
from lab.simulator.virtual.network import SIZES, Direction, Network, TextWire, refuse, submit
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
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.sessions import Session


@dataclass(slots=True)
class FleetDevice:
    """A device. `kind`: None, where each user has one that does not draft."""

    kind: DrafterKeys | None
    learnt: Learnt


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

    When it is closed, nothing more happens for its text.
    """

    def __init__(
        self,
        fleet: FleetAround,
        device: FleetDevice,
        node: FleetNode,
        record: Record,
        text: Text,
        deadline: float,
        over: Callable[["RequestRun"], None],
        failed: Callable[[], None],
    ) -> None:
        """`over`: called when the text is whole.
        `failed`: called when the device has given up.
        """
        self.device, self.node, self.record, self.text, self.deadline = device, node, record, text, deadline
        self.name = f"{record.conversation}/{record.turn}"
        self.network, self.rng = fleet.network(device, node), fleet.stream(f"{self.name}/link")
        self.released = 0.0  # when the device has heard that the verifier released the session of the whole text
        self._loop, self._verifier, self._over, self._failed = fleet.loop, node.verifier, over, failed
        self._received: list[int] = []  # tokens of the output
        self._closed = False
        record.nodes.append(node.name)
        node.began(self)
        self._writer = _WRITERS[fleet.configuration.mode](self, fleet.configuration)
        self._writer.begin()

    @property
    def prompt(self) -> list[int]:
        return self.text.tokens(0, self.text.prompt_len)

    @property
    def tokens_left(self) -> int:
        """Output tokens that are not committed yet."""
        session = self._writer.session
        return self.record.output_tokens - (0 if session is None else len(session.tokens) - self.text.prompt_len)

    def opened(self) -> Session:
        """A session for it at the verifier."""
        return Session(
            self.name, self.prompt, self.text.prompt_len, SPEC, self.record.text_tokens, self.backend.vocabulary.ends
        )

    def tell(self, committed: Committed) -> None:
        """Take in tokens that have arrived at the device."""
        self._received += [token for token, _ in committed.tokens]
        self.record.times += [self.now] * len(committed.tokens)
        self.record.drafted += sum(each.judged for each in committed.rounds)
        self.record.accepted += sum(each.accepted for each in committed.rounds)

    def close(self, after: float = 0.0) -> None:
        """Have the verifier forget the request, `after` seconds later."""
        self._closed = True
        self.node.runs.pop(self, None)
        session = self._writer.session
        self._writer.stop()
        if session is not None and after:
            self._loop.at(self.now + after, lambda: self._forget(session))
        elif session is not None:
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
        """Call `do` at time `when`, unless it is closed by then."""
        self._loop.at(when, self.guarded(do))

    def guarded(self, do: Callable[[], object]) -> Callable[[], None]:
        """A function that calls `do` as an event of the text, unless the request is closed by then."""

        def event() -> None:
            if not self._closed:
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
        done = request.done

        def unless_closed(result: Answer | SpecPairError) -> None:
            if not self._closed:
                done(result)

        request.done = unless_closed
        try:
            self._verifier.scheduler.submit(request, now)
        except Overloaded:
            request.done = done
            raise
        self._verifier.look()


SPEC = TextSpec.of(Sampling())  # of all texts


class TextWriter(Protocol):
    """Writes the text of a request."""

    @property
    def session(self) -> Session | None:
        """Its session at the verifier; None: there is none yet."""

    def begin(self) -> None:
        """Begin to write."""

    def stop(self) -> None:
        """Stop writing: the text is complete, or its device has given up."""


class ServerStream:
    """The exchange of a device with a server that writes by itself and streams tokens back."""

    def __init__(self, run: RequestRun) -> None:
        self.wire, self.size = TextWire(run, run.network, run.rng), SIZES.generate.of(run.text.prompt_len)
        self._run, self._opens = run, SIZES.generate_opened

    def ask(self, do: Callable[[], object]) -> None:
        """Call `do` when the request, of `size` bytes, has arrived at the server."""
        self.wire.up(self.size, do)

    def tell(self, committed: Committed) -> None:
        """Send tokens to the device."""
        size, self._opens = SIZES.generated.of(len(committed.tokens)) + self._opens, 0.0
        self.wire.stream(size, lambda: self._run.tell(committed))


class RemoteWriter:
    """A `TextWriter` of the modes remote and lockstep."""

    def __init__(self, run: RequestRun, configuration: Configuration) -> None:
        engine, kind, gamma = run.device.learnt.engine, run.device.kind, configuration.gamma
        assert engine is not None and kind is not None, "checked when the file was read"
        self._run, self._engine = run, engine
        self._open = ExitStack()
        mechanisms = LOCKSTEP if configuration.mode == "lockstep" else Mechanisms()
        self._drafter = EngineDrafter(
            run,
            run.prompt,
            Agreeing(Choices(run.text, kind.agreement.built)),
            engine,
            engine.held(run.record.conversation),
            run.tell,
            run.guarded,
            max_tokens=run.record.output_tokens,
            network=run.network,
            length=gamma if isinstance(gamma, int) else None,
            mechanisms=replace(mechanisms, trees=gamma == "tree"),
            estimates=self._open.enter_context(run.device.learnt.experience.text(SPEC, run.node.pass_times)),
            seed=run.rng.getrandbits(32),
            name=run.name,
        )
        self.session = self._drafter.session

    def begin(self) -> None:
        self._drafter.start()

    def stop(self) -> None:
        self._open.close()
        self._engine.keep(self._run.record.conversation, self._drafter.held)


class TargetWriter:
    """A `TextWriter` of mode target."""

    def __init__(self, run: RequestRun, configuration: Configuration) -> None:
        self._run, self._stream = run, ServerStream(run)
        self.session = run.opened()
        self._request = Request(self.session, Draft(run.text.prompt_len), or_raise(self._passed), until_end=True)

    def begin(self) -> None:
        self._stream.ask(lambda: submit(self._run, self._request, self._stream.wire, self._stream.size))

    def stop(self) -> None:
        self._request.cancelled = True

    def _passed(self, answer: Answer) -> None:
        self._stream.tell(Committed(answer.position, answer.details.sourced(answer.tokens), answer.details))


class FusedWriter:
    """A `TextWriter` of mode fused."""

    def __init__(self, run: RequestRun, configuration: Configuration) -> None:
        node = run.node
        assert node.learnt.engine is not None and node.rounds is not None and node.kind.draft is not None
        self.session: Session | None = None  # none while the text waits
        self._run, self._engine, self._rounds = run, node.learnt.engine, node.rounds
        self._agreement = node.kind.draft.agreement.built
        self._stream, self._open = ServerStream(run), ExitStack()
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
        run, node = self._run, self._run.node
        experience = node.learnt.experience.text(SPEC, node.pass_times, together=True)
        self.session = run.opened()
        self._member = VirtualMember(
            self.session,
            run.text.prompt_len,
            Agreeing(Choices(run.text, self._agreement)),
            self._open.enter_context(experience).acceptance,
            self._report,
            refused=self._overloaded,
            held=self._engine.begun(run.text.prompt_len, self._engine.held(run.record.conversation)),
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
        """Have the device send the request again later."""
        self._over()
        refuse(self._run, self._stream.wire, self._stream.size, error, False, self._refused, again=self._again)

    def _again(self, refused: float) -> None:
        self._refused = refused
        self._ask()

    def _over(self) -> None:
        """Give the slot back: drafting has ended."""
        member, self._member = self._member, None
        if member is not None:
            self._rounds.leave(member)
            self._open.close()
            self._engine.keep(self._run.record.conversation, member.held)
            self._engine.free()

    def stop(self) -> None:
        self._stopped = True
        self._over()


_WRITERS: dict[str, Callable[[RequestRun, Configuration], TextWriter]] = {
    "target": TargetWriter,
    "fused": FusedWriter,
    "lockstep": RemoteWriter,
    "remote": RemoteWriter,
}
