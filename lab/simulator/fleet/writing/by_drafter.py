"""Modes remote and lockstep, where the device drafts."""

from contextlib import ExitStack
from dataclasses import replace

from lab.simulator.drafting.drafter import EngineDrafter
from lab.simulator.fleet.settings import FleetMode
from lab.simulator.fleet.text import Agreeing, Choices
from lab.simulator.fleet.writing.job import SPEC, WritingTask
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms


class RemoteWriter:
    """A `TextWriter` of the modes remote and lockstep."""

    server_writes = False

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
