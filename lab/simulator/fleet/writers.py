"""What writes the text of a request, in each mode. Times in seconds."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from drafter_client.modes.auto import compared
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.fleet.request import SPEC, RequestRun, TextWriter
from lab.simulator.fleet.text import Agreeing, Choices
from lab.simulator.virtual.draft_engine import EngineDrafter
from lab.simulator.virtual.network import SIZES, TextWire, refuse, submit
from lab.simulator.virtual.rounds import VirtualMember
from lab.simulator.virtual.world import or_raise
from specpair.drafters.run.events import Committed
from specpair.protocol.errors import Overloaded
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.draft import Draft
from specpair.speculation.policy.draft_length import MAX_AUTO
from specpair.speculation.policy.modes.estimate import FUSED, REMOTE, TARGET, WARM_UP, PairLatencies
from specpair.speculation.policy.modes.rates import ModeRates
from specpair.speculation.policy.modes.selector import ModeSelector
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.sessions import Session


class ServerStream:
    """The exchange of a device with a server that writes by itself and streams tokens back."""

    def __init__(self, run: RequestRun) -> None:
        self.wire, self.size = (
            TextWire(run, run.network, run.rng, processes=run.processes),
            SIZES.generate.of(len(run.known)),
        )
        self._run, self._opens = run, SIZES.generate_opened

    def ask(self, do: Callable[[], object]) -> None:
        """Call `do` when the request, of `size` bytes, has arrived at the server."""
        self.wire.up(self.size, do)

    def tell(self, committed: Committed) -> None:
        """Send tokens to the device."""
        size, self._opens = SIZES.generated.of(len(committed.tokens)) + self._opens, 0.0
        self.wire.prepare(lambda: self.wire.stream(size, lambda: self._run.tell(committed)))


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
            run.known,
            Agreeing(Choices(run.text, kind.agreement.built)),
            engine,
            engine.held(run.record.conversation),
            run.tell,
            run.guarded,
            max_tokens=run.left,
            network=run.network,
            processes=run.processes,
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
        self.session.watchers = ()
        self._engine.keep(self._run.record.conversation, self._drafter.held)


class TargetWriter:
    """A `TextWriter` of mode target."""

    def __init__(self, run: RequestRun, configuration: Configuration) -> None:
        self._run, self._stream = run, ServerStream(run)
        self.session = run.opened()
        self._request = Request(self.session, Draft(len(run.known)), or_raise(self._passed), until_end=True)

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
        assert node.rounds is not None, "checked when the file was read"
        self.session: Session | None = None  # none while the text waits
        self._run, self._engine, self._rounds = run, node.learnt.engine, node.rounds
        self._agreement = None if node.kind.draft is None else node.kind.draft.agreement.built
        self._stream, self._open = ServerStream(run), ExitStack()
        self._member: VirtualMember | None = None  # while it has a slot
        self._stopped = False
        self._refused: float | None = None  # when the device learnt that the verifier was overloaded, in seconds

    def begin(self) -> None:
        self._stream.ask(self._ask)

    def _ask(self) -> None:
        if self._engine is None:
            self._start()
        else:
            self._engine.lend(self._start)

    def _start(self) -> bool:
        if self._stopped:
            return False
        run, node = self._run, self._run.node
        experience = node.learnt.experience.text(SPEC, node.pass_times, together=True)
        self.session = run.opened()
        run.take_over(self.session)
        known, held = len(self.session.tokens), 0
        if self._engine is not None:
            held = self._engine.begun(known, self._engine.held(run.record.conversation))
        self._member = VirtualMember(
            self.session,
            known,
            None if self._agreement is None else Agreeing(Choices(run.text, self._agreement)),
            self._open.enter_context(experience).acceptance,
            self._report,
            refused=self._overloaded,
            held=held,
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
            if self._engine is not None:
                self._engine.keep(self._run.record.conversation, member.held)
                self._engine.free()

    def stop(self) -> None:
        self._stopped = True
        self._over()


class AutoWriter:
    """A `TextWriter` of mode auto: the shipped selection, with the other writers for its stretches."""

    def __init__(self, run: RequestRun, configuration: Configuration) -> None:
        self._run, self._configuration = run, configuration
        self._selector = run.device.selectors.setdefault(run.node.name, _selector(run))
        self._mode = self._selector.next(run.left)
        self._writer = WRITERS[self._mode](run, configuration)
        self._written, self._asked = 0, 0.0  # of the stretch: tokens, and since when the device waits for the next ones
        self._changes = False
        run.heard = self._heard

    @property
    def session(self) -> Session | None:
        return self._writer.session

    def begin(self) -> None:
        self._written, self._asked = 0, self._run.now
        self._writer.begin()

    def stop(self) -> None:
        self._writer.stop()

    def _heard(self, committed: Committed) -> None:
        run, count = self._run, len(committed.tokens)
        seconds, self._asked = run.now - self._asked if self._written >= WARM_UP else 0.0, run.now
        self._selector.add_measurement(self._mode, count, seconds, *compared(committed))
        self._written += count
        if self._changes or not run.left:
            return
        mode = self._selector.next(run.left, self._mode, self._written)
        if mode != self._mode:  # once what happens at this moment is over
            self._changes = True
            run.at(run.now, partial(self._change, mode))

    def _change(self, mode: str) -> None:
        self._changes, self._mode = False, mode
        self._writer.stop()
        self._run.next_stretch()
        self._writer = WRITERS[mode](self._run, self._configuration)
        self.begin()


def _selector(run: RequestRun) -> ModeSelector:
    """A selection of which nothing is known but what both ends report."""
    node, engine = run.node, run.device.learnt.engine
    modes, drafts = [TARGET], dict[str, str]()
    if node.rounds is not None:
        modes.append(FUSED)
        drafts[FUSED] = "server"
    if engine is not None:
        modes.append(REMOTE)
        drafts[REMOTE] = "device"
    machines = PairLatencies(
        tuple(node.pass_times),
        run.network.rtt,
        draft=None if engine is None else engine.step_time,
        served_draft=None if node.rounds is None else node.rounds.step_time,
        served_depth=MAX_AUTO if node.kind.head is None or node.kind.draft is not None else node.kind.head.depth,
        head=node.verifier.head_time or None,
        head_depth=node.verifier.backend.head_depth,
    )
    return ModeSelector(ModeRates(modes, machines, drafts))


WRITERS: dict[str, Callable[[RequestRun, Configuration], TextWriter]] = {
    "target": TargetWriter,
    "fused": FusedWriter,
    "lockstep": RemoteWriter,
    "remote": RemoteWriter,
    "auto": AutoWriter,
}
