"""Mode fused, where the server drafts: as many texts at once as its draft model has slots; the others wait.

They are written in rounds, all together, by what ships. A text with a draft length of its own is written by itself, by
the real controller in lockstep, as a request with `draft_n` is.
"""

from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

from lab.simulator.drafting.drafter import EngineDrafter
from lab.simulator.drafting.rounds import VirtualMember
from lab.simulator.fleet.text import Agreeing, Choices
from lab.simulator.fleet.writing.by_drafter import continued
from lab.simulator.fleet.writing.job import SPEC, Job, Stream
from lab.simulator.virtual.wire import refuse
from specpair.drafters.base import Drafter
from specpair.drafters.run.events import Committed
from specpair.protocol.errors import Overloaded
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.draft import Draft
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import LOCKSTEP
from verifier_server.engine.requests import Answer
from verifier_server.sessions import Session


class FusedWriter:
    """A `Writer` of mode fused."""

    server_writes = True

    def __init__(self, job: Job) -> None:
        learnt = job.connection.node.learnt
        assert learnt.engine is not None
        self.session: Session | None = None  # none while the text waits
        self._job, self._engine, self._experience = job, learnt.engine, learnt.experience
        self._stream = Stream(job)
        self._written: _Written | None = None  # while it has a slot
        self._stopped = False
        self._refused: float | None = None  # when the device learnt that the verifier was overloaded, in seconds
        self._open = ExitStack()

    def begin(self) -> None:
        self._stream.ask(self._ask)

    def _ask(self) -> None:
        self._engine.lend(self._start)

    def _start(self) -> bool:
        if self._stopped:
            return False
        job, together = self._job, self._job.device.length is None
        choices = Choices(job.text, job.connection.node.kind.draft_agreement)
        estimates = self._open.enter_context(
            self._experience.text(SPEC, job.connection.node.pass_times, together=together)
        )
        held = self._engine.held(job.conversation)
        if together:
            self._written = _Together(job, Agreeing(choices), estimates, held, self)
        else:
            self._written = _Alone(job, Agreeing(choices), estimates, held, self)
        self.session = self._written.session
        self._written.begin()
        return True

    def tell(self, committed: Committed) -> None:
        """Stream tokens to the device."""
        self._stream.tell(committed)

    def refused(self, error: Overloaded) -> None:
        """Have the device come again: the verifier is overloaded."""
        self.over()
        begun = bool(self._job.received)
        refuse(self._job.connection, self._stream.wire, self._stream.size, error, begun, self._refused, self._again)

    def _again(self, refused: float) -> None:
        self._refused = refused
        self._ask()

    def over(self) -> None:
        """Give the slot back: nothing more is drafted."""
        written, self._written = self._written, None
        if written is not None:
            written.stop()
            self._open.close()
            self._engine.keep(self._job.conversation, written.held)
            self._engine.free()

    def stop(self) -> None:
        self._stopped = True
        self.over()


class _Written(Protocol):
    """A text that has a slot of the draft model."""

    @property
    def session(self) -> Session: ...

    @property
    def held(self) -> int:
        """Tokens of the text that the slot holds."""

    def begin(self) -> None: ...

    def stop(self) -> None: ...


class _Together:
    """A text of the server's rounds."""

    def __init__(self, job: Job, drafter: Drafter, estimates: Estimates, held: int, writer: FusedWriter) -> None:
        self.session = job.opened()
        self.session.self_continue, self.session.watchers = False, ()
        rounds = job.connection.node.rounds
        assert rounds is not None
        self._connection, self._rounds, self._writer = job.connection, rounds, writer
        self._member = VirtualMember(
            self.session,
            job.known,
            drafter,
            estimates.acceptance,
            self._report,
            writer.refused,
            held,
        )

    @property
    def held(self) -> int:
        return self._member.held

    def begin(self) -> None:
        self._rounds.read(self._member)
        self._connection.arrived()
        self._rounds.write(self._member)

    def stop(self) -> None:
        self._rounds.leave(self._member)

    def _report(self, answer: Answer, draft: Draft) -> None:
        judged = [JudgedRound(answer.judged, answer.accepted)] if answer.judged else []
        details = answer.details
        self._writer.tell(Committed(answer.position, details.sourced(answer.tokens), details, rounds=judged))
        if answer.finish_reason is not None:
            self._writer.over()


class _Alone:
    """A text with a draft length of its own."""

    def __init__(self, job: Job, drafter: Drafter, estimates: Estimates, held: int, writer: FusedWriter) -> None:
        engine = job.connection.node.learnt.engine
        assert engine is not None
        estimates.latencies.drafted(1, engine.step_time)
        self._drafter = EngineDrafter(
            job.connection,
            job.prompt,
            drafter,
            engine,
            held,
            lambda committed: writer.tell(replace(committed, schedule=None)),  # the stream does not tell it
            job.connection.guarded,
            max_tokens=job.output_tokens,
            mechanisms=LOCKSTEP,
            length=job.device.length,
            estimates=estimates,
            seed=job.rng.getrandbits(32),
            name=job.name,
        )
        self.session = continued(self._drafter, job)

    @property
    def held(self) -> int:
        return self._drafter.held

    def begin(self) -> None:
        self._drafter.start()

    def stop(self) -> None:
        pass
