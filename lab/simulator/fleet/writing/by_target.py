"""Mode target: the verifier decodes the text alone and streams it."""

from lab.simulator.fleet.writing.job import Job, Stream
from lab.simulator.virtual.wire import submit
from lab.simulator.virtual.world import or_raise
from specpair.drafters.run.events import Committed
from specpair.speculation.draft import Draft
from verifier_server.engine.requests import Answer, Request


class TargetWriter:
    """A `Writer` of mode target."""

    server_writes = True

    def __init__(self, job: Job) -> None:
        self._job, self._stream = job, Stream(job)
        self.session = job.opened()
        self._request = Request(self.session, Draft(job.known), or_raise(self._passed), until_end=True)

    def begin(self) -> None:
        self._stream.ask(self._arrive)

    def _arrive(self) -> None:
        self.session.self_continue, self.session.watchers = False, ()
        submit(self._job.connection, self._request, self._stream.wire, self._stream.size)

    def stop(self) -> None:
        self._request.cancelled = True

    def _passed(self, answer: Answer) -> None:
        self._stream.tell(Committed(answer.position, answer.details.sourced(answer.tokens), answer.details))
