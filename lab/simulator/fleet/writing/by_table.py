"""Drafters by table in a fleet, and the probes beside them: conversations with the real controller, which is recorded.

Each kind of device has a table for each kind of verifier. It is written by the probes while the fleet runs, and follows
the load. So it is fitted in the very scenario, and what the two kinds of texts differ by in the same seconds is the
error of the tables. In the first seconds the tables know little: leave them out (burn-in).

Only chains of the modes remote and lockstep have tables: in mode fused the drafters of a verifier wait for each other.
"""

from collections import Counter
from dataclasses import dataclass

from lab.simulator.drafting.drafter import EngineDrafter
from lab.simulator.fleet.settings import DeviceKind, Mode
from lab.simulator.fleet.text import Choices
from lab.simulator.fleet.writing.by_drafter import RemoteWriter
from lab.simulator.fleet.writing.job import Job, Writer
from lab.simulator.virtual.table import Table
from lab.simulator.virtual.table_drafter import Recorded, TableDrafter
from specpair.drafters.run.events import Committed
from specpair.speculation.acceptance.round_counts import JudgedRound


@dataclass(slots=True)
class _Kind:
    """A kind of device at a kind of verifier."""

    table: Table
    probes: int = 0  # texts of probes that are under way


def has_table(device: DeviceKind) -> bool:
    """Whether there are tables for a kind of device."""
    return device.mode in (Mode.LOCKSTEP, Mode.REMOTE) and not device.trees


class Tables:
    """The tables of a fleet, and which texts have the real controller."""

    def __init__(self, probes: int) -> None:
        """`probes`: texts of probes at once, of each kind of device at each kind of verifier."""
        self._probes = probes
        self._kinds: dict[tuple[int, int], _Kind] = {}
        self.texts: Counter[bool] = Counter()  # texts begun, by whether a probe's

    def writer(self, job: Job) -> Writer:
        """The writer of a job of a mode that has tables. A device whose first text is a probe's stays a probe."""
        key = id(job.device), id(job.connection.node.kind)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(Table())
        if job.learnt.probe is None:
            job.learnt.probe = kind.probes < self._probes
        self.texts[job.learnt.probe] += 1
        return _ProbeWriter(job, kind) if job.learnt.probe else _TableWriter(job, kind.table)


class _RecordedDrafter(Recorded, EngineDrafter):
    pass


class _ProbeWriter(RemoteWriter):
    """A `Writer` with the real controller that writes the table."""

    drafter = _RecordedDrafter

    def __init__(self, job: Job, kind: _Kind) -> None:
        super().__init__(job)
        self._kind = kind
        assert isinstance(self._drafter, Recorded)
        self._drafter.table = kind.table

    def begin(self) -> None:
        self._kind.probes += 1
        super().begin()

    def stop(self) -> None:
        self._kind.probes -= 1
        super().stop()


class _TableWriter:
    """A `Writer` by table."""

    server_writes = False

    def __init__(self, job: Job, table: Table) -> None:
        self.session = job.opened()
        self._job, self._told, self._drafted, self._accepted = job, len(self.session.tokens), 0, 0
        choices = Choices(job.text, job.device.agreement)
        self._drafter = TableDrafter(
            job.connection,
            self.session,
            choices.draft,
            table,
            job.network,
            self._tell,
            job.rng.getrandbits(32),
            job.connection.at_regardless,
            self_continue=job.device.mode is Mode.REMOTE,
        )

    def begin(self) -> None:
        self._drafter.start()

    def stop(self) -> None:
        self._drafter.finished = True

    def _tell(self, tokens: list[int]) -> None:
        session, start = self.session, self._told
        self._told = start + len(tokens)
        details = session.details_of(start, self._told)
        judged = JudgedRound(session.drafted - self._drafted, session.accepted - self._accepted)
        self._drafted, self._accepted = session.drafted, session.accepted
        self._job.tell(Committed(start, details.sourced(tokens), details, rounds=[judged]))
