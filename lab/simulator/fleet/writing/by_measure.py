"""Mode auto: each stretch of a text in the mode that is expected to be the fastest, by the selection that ships.

The estimates, the trials and the measurements are those of `drafter_client.modes`, told the time of the fleet's clock.
Left out: what earlier runs have left in a file, and the time to open the connections of a new stretch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from drafter_client import options
from drafter_client.modes.auto import Stretch
from drafter_client.modes.selection import ModeSelection
from lab.simulator.fleet.device_pool import Learnt
from lab.simulator.fleet.node import Node
from lab.simulator.fleet.settings import Mode
from lab.simulator.fleet.writing.by_drafter import RemoteWriter
from lab.simulator.fleet.writing.by_server import FusedWriter
from lab.simulator.fleet.writing.by_target import TargetWriter
from lab.simulator.fleet.writing.job import Job, Writer
from lab.simulator.virtual.message_sizes import SIZES
from specpair.drafters.pass_times import PassTimes
from specpair.drafters.run.events import Committed
from specpair.protocol.service_responses import ModelInfo
from verifier_server.sessions import Session

_WRITERS: dict[Mode, Callable[[Job], Writer]] = {
    Mode.TARGET: TargetWriter,
    Mode.FUSED: FusedWriter,
    Mode.REMOTE: RemoteWriter,
}
_PINGS = 2  # round trips of a probe, as in `drafter_client.modes.selection`; the shortest counts


@dataclass(slots=True)
class Course:
    """What a text in mode auto takes with it from one verifier to another."""

    stretch: Stretch | None = None  # the present one; None: the text has not begun
    read: int = 0  # tokens of the text that the device's draft model has read
    outages: int = 0


class AutoWriter:
    """A `Writer` of mode auto."""

    def __init__(self, job: Job, course: Course) -> None:
        self._job, self._course = job, course
        self._selection = _selection(job)
        self._session: Session | None = None  # of the stretches before
        self._writer: Writer | None = None
        self._connection = job.connection

    @property
    def session(self) -> Session | None:
        return (self._writer and self._writer.session) or self._session

    @property
    def server_writes(self) -> bool:
        return self._writer is None or self._writer.server_writes

    def begin(self) -> None:
        self._probe()
        course = self._course
        if course.stretch is None:
            self._start(Mode(self._selection.next(*self._rest())))
        else:  # the mode stays when the verifier is lost
            course.outages += 1
            self._start(Mode(course.stretch.mode))

    def stop(self) -> None:
        self._connection.closed = True
        if self._writer is not None:
            self._writer.stop()

    def _rest(self) -> tuple[int, None, int, int]:
        """What `ModeSelection.next` needs at the beginning of a text."""
        return self._job.output_tokens - len(self._job.received), None, 0, self._known - self._course.read

    @property
    def _known(self) -> int:
        return self._job.text.prompt_len + len(self._job.received)

    def _start(self, mode: Mode) -> None:
        """Begin a stretch."""
        job, course = self._job, self._course
        if mode is Mode.FUSED and job.connection.node.learnt.engine is None:
            mode = Mode.TARGET  # the verifier before had a draft model
        before, self._connection = self._connection, job.connection.another()
        writes_on = self._writer if isinstance(self._writer, TargetWriter) else None
        if self._writer is not None:
            before.closed, self._session = True, self.session
            if writes_on is None:
                self._writer.stop()
            else:  # until the server hears of the change
                self._connection.at_first = writes_on.stop
        if course.stretch is None or course.stretch.mode != mode.value:
            course.stretch = Stretch(options.Mode(mode.value), self._connection.now, course.outages)
        stretch = replace(
            job,
            connection=self._connection,
            device=replace(job.device, mode=mode),
            tell=self._take,
            session=self._session,
        )
        self._writer = _WRITERS[mode](stretch)
        self._writer.begin()

    def _take(self, committed: Committed) -> None:
        """Take in tokens, as `drafter_client.modes.auto` does."""
        course, now = self._course, self._connection.now
        assert course.stretch is not None
        course.stretch.add(self._selection, committed, now, course.outages)
        self._job.tell(committed)
        self._probe()
        if course.stretch.mode is options.Mode.REMOTE:
            course.read = self._known
        left, _, _, unread = self._rest()
        mode = course.stretch.next(self._selection, left, unread)
        if mode is not course.stretch.mode and left:
            self._start(Mode(mode.value))
        else:
            course.stretch.ask(now)

    def _probe(self) -> None:
        """Measure the link if that is due. A probe that loses a message has failed."""
        connection, selection = self._job.connection, self._selection
        if not selection.probe_is_due(connection.now):
            return
        network = self._job.network
        takes = [network.takes(connection.now, self._job.rng) for _ in range(2 * _PINGS)]
        if None in takes:
            connection.later(lambda: selection.probed(None, connection.now), network.rtt)
            return
        ways = cast(list[float], takes)
        bytes_take = (SIZES.probe + SIZES.probe_reply) / network.bandwidth
        trips = [there + back + bytes_take for there, back in zip(ways[::2], ways[1::2], strict=True)]
        connection.later(lambda: selection.probed(min(trips), connection.now), sum(trips))


def _selection(job: Job) -> ModeSelection:
    """That of the device, for all its texts: behind a router it sees one verifier."""
    learnt = job.learnt
    if learnt.selection is None:
        times = None
        if learnt.engine is not None:
            times = PassTimes(learnt.engine.step_time, learnt.engine.read_time)
        node = job.connection.node
        link = job.network.rtt + 2 * job.network.jitter
        name = None if times is None else "the device's"
        learnt.selection = ModeSelection(
            [options.Mode(each.value) for each in _modes(learnt, node)],
            _info(node),
            name,
            link,
            job.connection.now,
            times=times,
        )
    return learnt.selection


def _modes(learnt: Learnt, node: Node) -> list[Mode]:
    remote = [] if learnt.engine is None else [Mode.REMOTE]
    fused = [] if node.learnt.engine is None else [Mode.FUSED]
    return [*remote, *fused, Mode.TARGET]


def _info(node: Node) -> ModelInfo:
    """What the verifier tells of itself, as far as the selection asks."""
    engine = node.learnt.engine
    told: dict[str, Any] = {
        "name": node.kind.name or "target",
        "engine": "virtual",
        "pass_ms": [1e3 * each for each in node.pass_times],
        "self_continue": True,
        "draft_model": None if engine is None else "the server's",
        "draft_pass_ms": None if engine is None else 1e3 * engine.step_time,
    }
    return ModelInfo.model_construct(**told)
