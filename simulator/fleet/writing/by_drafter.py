"""Modes remote and lockstep, where the device drafts, and mode fused, where the server does."""

from contextlib import ExitStack
from dataclasses import replace

from simulator.drafting.drafter import EngineDrafter
from simulator.fleet.settings import Mode
from simulator.fleet.text import Agreeing
from simulator.fleet.writing.job import Job, Wire
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms, mechanisms_of
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from verifier_server.sessions import Session

# As `verifier_server.generation.server_drafting` has them where the models share no cores.
_FUSED = replace(mechanisms_of(shares_cores=False, self_continue=True, may_change_mode=True), in_flight=2)
_SPEC = TextSpec.of(Sampling())


class RemoteWriter:
    """A `Writer` of the modes remote and lockstep."""

    def __init__(self, job: Job) -> None:
        device, node = job.device, job.connection.node
        engine = job.learnt.engine
        assert engine is not None
        self._job, self._engine = job, engine
        self._open = ExitStack()
        lockstep = device.mode is Mode.LOCKSTEP
        self._drafter = EngineDrafter(
            job.connection,
            job.prompt,
            Agreeing(job.text),
            engine,
            engine.held(job.conversation),
            job.tell,
            job.connection.guarded,
            max_tokens=job.output_tokens,
            network=job.network,
            length=device.length,
            mechanisms=LOCKSTEP if lockstep else Mechanisms(),
            estimates=self._open.enter_context(job.learnt.experience.text(_SPEC, node.pass_times)),
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


class FusedWriter:
    """A `Writer` of mode fused. As many texts run at once as the draft model has slots; the others wait.

    What the server drafts with has one slot for each text, so it expands one branch in a draft step.
    """

    def __init__(self, job: Job) -> None:
        learnt = job.connection.node.learnt
        assert learnt.engine is not None
        self.session: Session | None = None  # none while the text waits
        self._job, self._learnt, self._engine, self._wire = job, learnt, learnt.engine, Wire(job)
        self._drafter: EngineDrafter | None = None
        self._stopped = False
        self._open = ExitStack()

    def begin(self) -> None:
        self._wire.carry(lambda: self._engine.lend(self._start))

    def _start(self) -> bool:
        if self._stopped:
            return False
        job, engine = self._job, self._engine
        connection, agreeing = job.connection, Agreeing(job.text)
        agreeing.width = 1
        estimates = self._open.enter_context(self._learnt.experience.text(_SPEC, connection.node.pass_times))
        self._drafter = EngineDrafter(
            connection,
            job.prompt,
            agreeing,
            engine,
            engine.held(job.conversation),
            lambda committed: self._wire.stream(replace(committed, schedule=None)),  # the stream does not tell it
            connection.guarded,
            max_tokens=job.output_tokens,
            mechanisms=_FUSED if job.device.length is None else LOCKSTEP,
            length=job.device.length,
            estimates=estimates,
            seed=job.rng.getrandbits(32),
            name=job.name,
        )
        estimates.latencies.drafted(1, engine.step_time)
        self.session = self._drafter.session
        self.session.resume(job.received)
        self._drafter.start()
        return True

    def stop(self) -> None:
        self._stopped = True
        self._open.close()
        if self._drafter is not None:
            self._engine.keep(self._job.conversation, self._drafter.held)
            self._engine.free()
