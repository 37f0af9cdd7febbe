"""Modes remote and lockstep, where the device drafts."""

from contextlib import ExitStack
from dataclasses import replace

from simulator.drafting.drafter import EngineDrafter
from simulator.drafting.lengths import PolicyLength
from simulator.drafting.tree import TreeDrafter
from simulator.fleet.settings import Mode
from simulator.fleet.text import SECOND, Agreeing, Choices
from simulator.fleet.writing.job import SPEC, Job
from specpair.drafters.base import Drafter
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from verifier_server.sessions import Session


def length_of(job: Job) -> int | DraftLength | None:
    """The draft length, or what decides it for this text; None: the controller."""
    length = job.device.length
    return PolicyLength(length(), job.connection.max_drafts) if callable(length) else length


def _drafter(job: Job) -> Drafter:
    choices = Choices(job.text, job.device.agreement)
    if job.device.tree > 1:
        job.connection.node.trees[job.name] = job.device.tree
        return TreeDrafter(choices, job.device.tree, SECOND)
    return Agreeing(choices)


def continued(drafter: EngineDrafter, job: Job) -> Session:
    """The session of a drafter, which goes on where the text is."""
    if job.session is None:
        drafter.session.resume(job.received)
    else:
        drafter.go_on(job.session, job.known)
    return drafter.session


class RemoteWriter:
    """A `Writer` of the modes remote and lockstep."""

    server_writes = False
    drafter: type[EngineDrafter] = EngineDrafter

    def __init__(self, job: Job) -> None:
        device, node = job.device, job.connection.node
        engine = job.learnt.engine
        assert engine is not None
        self._job, self._engine = job, engine
        self._open = ExitStack()
        mechanisms = replace(Mechanisms(), after_recovered=device.tree == 1)  # siblings are in the tree already
        pass_times = node.times_of(device.tree)
        self._drafter = self.drafter(
            job.connection,
            job.prompt,
            _drafter(job),
            engine,
            engine.held(job.conversation),
            job.tell,
            job.connection.guarded,
            max_tokens=job.output_tokens,
            network=job.network,
            length=length_of(job),
            tree=device.tree,
            mechanisms=LOCKSTEP if device.mode is Mode.LOCKSTEP else mechanisms,
            estimates=self._open.enter_context(job.learnt.experience.text(SPEC, pass_times)),
            seed=job.rng.getrandbits(32),
            name=job.name,
            timeline=job.timeline,
        )
        self.session = continued(self._drafter, job)

    def begin(self) -> None:
        self._drafter.start()

    def stop(self) -> None:
        self._open.close()
        self._job.connection.node.trees.pop(self._job.name, None)
        self._engine.keep(self._job.conversation, self._drafter.held)
