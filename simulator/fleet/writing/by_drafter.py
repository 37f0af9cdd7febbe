"""Modes remote and lockstep, where the device drafts, and mode fused, where the server does."""

from contextlib import ExitStack
from dataclasses import replace

from simulator.drafting.drafter import EngineDrafter
from simulator.drafting.lengths import PolicyLength
from simulator.drafting.tree import TreeDrafter
from simulator.fleet.settings import Mode
from simulator.fleet.text import SECOND, Agreeing, Choices
from simulator.fleet.writing.job import Job, Stream
from simulator.virtual.agreement import Agreement
from simulator.virtual.timeline import What
from specpair.drafters.base import Drafter
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms, mechanisms_of
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from verifier_server.sessions import Session

# As `verifier_server.generation.server_drafting` has them where the models share no cores.
_FUSED = replace(mechanisms_of(shares_cores=False, self_continue=True, may_change_mode=True), in_flight=2)
_SPEC = TextSpec.of(Sampling())


def _length(job: Job) -> int | DraftLength | None:
    length = job.device.length
    return PolicyLength(length(), job.connection.max_drafts) if callable(length) else length


def _drafter(job: Job, agreement: Agreement, width: int | None = None) -> Drafter:
    """What drafts for the text. `width`: branches of a draft step, at most; None: as many as it takes."""
    choices = Choices(job.text, agreement)
    if job.device.tree > 1:
        job.connection.node.trees[job.name] = job.device.tree
        return TreeDrafter(choices, job.device.tree, SECOND)
    drafter = Agreeing(choices)
    drafter.width = width or drafter.width
    return drafter


def _continued(drafter: EngineDrafter, job: Job) -> Session:
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
            _drafter(job, device.agreement),
            engine,
            engine.held(job.conversation),
            job.tell,
            job.connection.guarded,
            max_tokens=job.output_tokens,
            network=job.network,
            length=_length(job),
            tree=device.tree,
            mechanisms=LOCKSTEP if device.mode is Mode.LOCKSTEP else mechanisms,
            estimates=self._open.enter_context(job.learnt.experience.text(_SPEC, pass_times)),
            seed=job.rng.getrandbits(32),
            name=job.name,
            timeline=job.timeline,
        )
        self.session = _continued(self._drafter, job)

    def begin(self) -> None:
        self._drafter.start()

    def stop(self) -> None:
        self._open.close()
        self._job.connection.node.trees.pop(self._job.name, None)
        self._engine.keep(self._job.conversation, self._drafter.held)


class FusedWriter:
    """A `Writer` of mode fused. As many texts run at once as the draft model has slots; the others wait.

    What the server drafts with has one slot for each text, so it expands one branch in a draft step.
    """

    server_writes = True

    def __init__(self, job: Job) -> None:
        learnt = job.connection.node.learnt
        assert learnt.engine is not None
        self.session: Session | None = None  # none while the text waits
        self._job, self._learnt, self._engine, self._stream = job, learnt, learnt.engine, Stream(job)
        self._drafter: EngineDrafter | None = None
        self._stopped = False
        self._open = ExitStack()

    def begin(self) -> None:
        self._stream.ask(self._ask)

    def _ask(self) -> None:
        self._engine.lend(self._job.timeline.until(What.SLOT, self._start))

    def _start(self) -> bool:
        if self._stopped:
            return False
        job, engine = self._job, self._engine
        connection, device = job.connection, job.device
        pass_times = connection.node.times_of(device.tree)
        estimates = self._open.enter_context(self._learnt.experience.text(_SPEC, pass_times))
        self._drafter = EngineDrafter(
            connection,
            job.prompt,
            _drafter(job, connection.node.kind.draft_agreement, width=1),
            engine,
            engine.held(job.conversation),
            lambda committed: self._stream.tell(replace(committed, schedule=None)),  # the stream does not tell it
            connection.guarded,
            max_tokens=job.output_tokens,
            mechanisms=_FUSED if device.length is None else LOCKSTEP,
            length=_length(job),
            tree=device.tree,
            estimates=estimates,
            seed=job.rng.getrandbits(32),
            name=job.name,
            timeline=job.timeline,
        )
        estimates.latencies.drafted(1, engine.step_time)
        self.session = _continued(self._drafter, job)
        self._drafter.start()
        return True

    def stop(self) -> None:
        self._stopped = True
        self._open.close()
        self._job.connection.node.trees.pop(self._job.name, None)
        if self._drafter is not None:
            self._engine.keep(self._job.conversation, self._drafter.held)
            self._engine.free()
