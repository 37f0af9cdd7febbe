"""Admission to the table of sessions: each client's quota, the idle sessions, and which one a new session replaces.

A session is in use while a request on it is served, a stream of its tokens included. A session with self-continuation
lingers: it stays in use for two more seconds, as long as the scheduler continues it. Otherwise a session is at rest,
finished or idle. When all places are taken, a new session displaces one at rest:

* a finished one, the one longest at rest first;
* else an idle one, the least recently used first: one of the same client if this has its quota of sessions already,
  else one of a client that has more than its quota, else one of any client.

No client has more sessions in use at once than its quota, so none can take all places for good.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from math import inf

from specpair.fairness import ReleaseRate, retry_after
from specpair.numbers import counted
from specpair.protocol.errors import Overloaded, RateLimited
from verifier_server.engine.sequence_state import SILENCE
from verifier_server.sessions import Session

LINGER = 2.0  # seconds for which the scheduler continues a session without requests

Sessions = OrderedDict[Session, None]  # an ordered set


@dataclass(eq=False, slots=True)
class Group:
    """The sessions of one client, or of all."""

    quota: int | None = None  # sessions that may be in use at once, if the client's key has a limit of its own
    held: int = 0  # sessions in the table
    use: ReleaseRate = field(default_factory=ReleaseRate)


class SessionAdmission:
    """Keeps every session of a table in one of three states: in use, lingering, at rest. Times are in seconds."""

    def __init__(self, clock: Callable[[], float], capacity: int, quota: int) -> None:
        """`capacity`: sessions in the table, at most.
        `quota`: sessions that one client may have in use at once, unless its key says otherwise.
        """
        self.clock, self._capacity, self._quota = clock, capacity, quota
        self._all = Group()
        self._clients: dict[Hashable, Group] = {}  # those with sessions
        self._lingering: Sessions = OrderedDict()  # in use without a request, the oldest first
        self._resting: Sessions = OrderedDict()  # the least recently used first

    def choose(self, name: Hashable, quota: int | None = None) -> Session | None:
        """The session that a new one of the client `name` replaces; None: the table has room.

        `quota`: sessions that the client may have in use at once, if its key says so.

        Raises Overloaded and RateLimited, with `retry_after`.
        """
        now = self._settled()
        client = self._clients.get(name) or Group()
        client.quota = quota
        self._check_quota(name, client, now)
        if self._all.held < self._capacity:
            return None

        def rank(session: Session) -> int:
            if session.finish_reason is not None:
                return 0
            if session.client == name and client.held >= self._quota_of(client):
                return 1
            other = self._clients[session.client]
            return 2 if other.held > self._quota_of(other) else 3

        if self._resting:
            return min(self._resting, key=rank)
        sessions = counted(self._capacity, "session is", "sessions are")
        raise Overloaded(
            f"all {sessions} taken and in use: try again later, or raise max_sessions",
            retry_after=retry_after(self._expected(self._all, list(self._lingering), now)),
        )

    def add(self, session: Session, quota: int | None = None) -> None:
        """Add a new session, which is at rest. `quota`: as for `choose`."""
        client = self._clients.setdefault(session.client, Group())
        client.quota = quota
        for group in (client, self._all):
            group.held += 1
        self._come_to_rest(session, self.clock())

    def drop(self, session: Session) -> None:
        """Remove a session, in whatever state it is."""
        now = self._settled()
        rested = session in self._resting
        self._resting.pop(session, None)
        self._lingering.pop(session, None)
        client = self._clients[session.client]
        for group in (client, self._all):
            group.held -= 1
            if not rested:
                group.use.freed(now)
        if not client.held:
            del self._clients[session.client]

    def use(self, session: Session) -> None:
        """Mark a session as in use when its first request begins.

        Raises Overloaded or RateLimited if its client has its quota in use.
        """
        now = self._settled()
        if session in self._lingering:
            del self._lingering[session]
            return
        client = self._clients[session.client]
        self._check_quota(session.client, client, now)
        self._resting.pop(session, None)
        for group in (client, self._all):
            group.use.taken(now)

    def rest(self, session: Session) -> None:
        """Mark a session as lingering or at rest after its last request."""
        now = self._settled()
        if session.self_continue and session.finish_reason is None:
            session.lease.last_used = now
            self._lingering[session] = None
        else:
            self._free(session, now)

    def touch(self, session: Session) -> None:
        """Count a session that is at rest as used now: it was looked up."""
        if session in self._resting:
            del self._resting[session]
            self._come_to_rest(session, self.clock())

    def unused(self, ttl: float) -> Session | None:
        """A session that has been at rest for longer than `ttl` seconds; None: there is none."""
        now = self._settled()
        session = next(iter(self._resting), None)
        return session if session is not None and session.lease.last_used < now - ttl else None

    @property
    def in_use(self) -> int:
        """How many sessions are in use, those that linger included."""
        return self._all.use.busy

    @property
    def full(self) -> bool:
        """Whether no new session can be opened, because all sessions in the full table are in use."""
        self._settled()
        return self._all.held >= self._capacity and not self._resting

    def text_under_way(self) -> float:
        """Seconds until all texts are idle if no request comes; 0: all are; infinity: a request is running.

        The text of a session at rest is under way until its client has been silent for `SILENCE` seconds, unless the
        text has ended.
        """
        now = self._settled()
        if self._all.use.busy > len(self._lingering):
            return inf
        unended = (each for each in (*self._lingering, *self._resting) if each.finish_reason is None)
        return max(0.0, max((each.lease.last_used for each in unended), default=-inf) + SILENCE - now)

    def _settled(self) -> float:
        """Mark sessions as at rest that have lingered for `LINGER` seconds. Returns the time."""
        now = self.clock()
        while self._lingering:
            session = next(iter(self._lingering))
            until = session.lease.last_used + LINGER
            if until > now:
                break
            del self._lingering[session]
            self._free(session, until)
        return now

    def _free(self, session: Session, now: float) -> None:
        for group in (self._clients[session.client], self._all):
            group.use.freed(now)
        self._come_to_rest(session, now)

    def _come_to_rest(self, session: Session, now: float) -> None:
        session.lease.last_used = now
        self._resting[session] = None

    def _quota_of(self, client: Group) -> int:
        return self._quota if client.quota is None else client.quota

    def _expected(self, group: Group, lingering: list[Session], now: float) -> float:
        """Estimated seconds until a session in use of a group comes to rest; exact if all of them are `lingering`."""
        expected = [each.lease.last_used + LINGER - now for each in lingering[:1]]
        if group.use.busy > len(lingering):
            expected.append(group.use.expected(now))
        return min(expected)

    def _check_quota(self, name: Hashable, client: Group, now: float) -> None:
        quota = self._quota_of(client)
        if not client.use.busy >= quota < self._capacity:
            return
        wait = retry_after(self._expected(client, [each for each in self._lingering if each.client == name], now))
        busy = counted(client.use.busy, "session of yours is", "sessions of yours are")
        if client.quota is not None:
            raise RateLimited(
                f"{busy} in use, and your key may have {quota}: try again later, or have its limit raised",
                retry_after=wait,
            )
        raise Overloaded(
            f"{busy} in use, and one client may have {quota}: try again later, or raise max_sessions_per_client",
            retry_after=wait,
        )
