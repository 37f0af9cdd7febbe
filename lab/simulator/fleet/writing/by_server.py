"""Modes target and fused, where the server writes and streams: the verifier decodes the text alone, or drafts for it.

In fused, as many texts are written at once as the draft model has slots, in the rounds that ship; the others wait.
"""

from contextlib import ExitStack

from lab.simulator.drafting.rounds import VirtualMember
from lab.simulator.fleet.text import Agreeing, Choices
from lab.simulator.fleet.writing.job import SPEC, ServerStream, WritingTask
from lab.simulator.virtual.network import refuse, submit
from lab.simulator.virtual.world import or_raise
from specpair.drafters.run.events import Committed
from specpair.protocol.errors import Overloaded
from specpair.speculation.acceptance.round_counts import JudgedRound
from specpair.speculation.draft import Draft
from verifier_server.engine.requests import Answer, Request
from verifier_server.sessions import Session


class TargetWriter:
    """A `TextWriter` of mode target."""

    server_writes = True

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

    server_writes = True

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
