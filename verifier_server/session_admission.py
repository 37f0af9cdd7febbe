"""Places in the table of sessions: how many each client has, which are at rest, and which one a new session displaces.

A session is in use while a request on it is served, a stream of its tokens included. A session with self-continuation
lingers: it stays in use for two more seconds, as long as the scheduler continues it. Otherwise a session is at rest,
finished or idle. When all places are taken, a new session displaces one at rest:

* a finished one, the one longest at rest first;
* else an idle one, the least recently used first: one of the same client if this has its quota of sessions already,
  else one of a client that has more than its quota, else one of any client.

No client has more sessions in use at once than its quota, so none can take all places for good. The time of each
operation does not depend on the number of sessions.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from math import inf

from specpair.fairness import ReleaseRate, retry_after
from specpair.numbers import counted
from specpair.protocol.errors import Overloaded, RateLimited
from verifier_server.engine.arrivals import SILENCE
from verifier_server.sessions import Session

LINGER = 2.0  # seconds for which the scheduler continues a session without requests

Sessions = OrderedDict[Session, None]  # an ordered set


@dataclass(eq=False, slots=True)
class Group:
    """The sessions of one client, or of all."""

    quota: int | None = None  # sessions that may be in use at once, if the client's key has a limit of its own
    held: int = 0  # sessions in the table
    use: ReleaseRate = field(default_factory=ReleaseRate)
    idle: Sessions = field(default_factory=OrderedDict)  # the least recently used first
    lingering: Sessions = field(default_factory=OrderedDict)  # in use without a request, the oldest first

    def expected(self, now: float) -> float:
        """Estimated seconds until a session that is in use comes to rest; exact if all of them linger."""
        expected = [next(iter(self.lingering)).lease.last_used + LINGER - now] if self.lingering else []
        if self.use.busy > len(self.lingering):
            expected.append(self.use.expected(now))
        return min(expected)


class SessionAdmission:
    """Keeps every session of a table in one of four states: in use, lingering, finished, idle. Times are in seconds."""

    def __init__(self, capacity: int, quota: int) -> None:
        """`capacity`: sessions in the table, at most.
        `quota`: sessions that one client may have in use at once, unless its key says otherwise.
        """
        self._capacity, self._quota = capacity, quota
        self._all = Group()
        self._clients: dict[Hashable, Group] = {}
        self._over: dict[Group, None] = {}  # clients with idle sessions and more sessions than their quota
        # Each in the order in which the sessions came to rest.
        self._finished: Sessions = OrderedDict()
        self._graced: Sessions = OrderedDict()  # finished or idle sessions with a grace, which is the same for all

    def choose(self, name: Hashable, now: float, quota: int | None = None) -> Session | None:
        """Which session a new one of the client `name` displaces; None: a place is free.

        `quota`: sessions that the client may have in use at once, if its key says so.

        Raises Overloaded and RateLimited, with `retry_after`.
        """
        self.settle(now)
        client = self._client(name)
        client.quota = quota
        self._check_quota(client, now)
        if self._all.held < self._capacity:
            return None
        if self._finished:
            return next(iter(self._finished))
        if client.held >= self._quota_of(client) and client.idle:
            return next(iter(client.idle))
        if self._over:
            return next(iter(next(iter(self._over)).idle))
        if self._all.idle:
            return next(iter(self._all.idle))
        sessions = counted(self._capacity, "session is", "sessions are")
        raise Overloaded(
            f"all {sessions} taken and in use: try again later, or raise max_sessions",
            retry_after=retry_after(self._all.expected(now)),
        )

    def add(self, session: Session, now: float) -> None:
        """Add a new session, which is at rest."""
        for group in (self._client(session.client), self._all):
            group.held += 1
        session.lease.last_used = now
        self._add_at_rest(session)

    def drop(self, session: Session, now: float) -> None:
        """Remove a session, in whatever state it is."""
        self.settle(now)
        was_in_use = not self._remove_from_rest(session)
        for group in self._groups(session):
            group.held -= 1
            if was_in_use:
                group.lingering.pop(session, None)
                group.use.freed(now)
        self._update_over(session)

    def use(self, session: Session, now: float) -> None:
        """Mark a session as in use: its first request begins.

        Raises Overloaded or RateLimited if its client has its quota in use.
        """
        self.settle(now)
        client, everyone = self._groups(session)
        if session in everyone.lingering:
            del client.lingering[session], everyone.lingering[session]
            return
        self._check_quota(client, now)
        self._remove_from_rest(session)
        client.use.taken(now)
        everyone.use.taken(now)

    def rest(self, session: Session, now: float) -> None:
        """Let a session linger or come to rest: its last request is over."""
        self.settle(now)
        session.lease.last_used = now
        if session.self_continue and session.finish_reason is None:
            for group in self._groups(session):
                group.lingering[session] = None
        else:
            self._come_to_rest(session, now)

    def touch(self, session: Session, now: float) -> None:
        """Count a session that is at rest as used now: it was looked up."""
        if self._remove_from_rest(session):
            session.lease.last_used = now
            self._add_at_rest(session)

    def settle(self, now: float) -> None:
        """Let sessions come to rest that have lingered for `LINGER` seconds."""
        while self._all.lingering:
            session = next(iter(self._all.lingering))
            until = session.lease.last_used + LINGER
            if until > now:
                return
            for group in self._groups(session):
                del group.lingering[session]
            session.lease.last_used = until
            self._come_to_rest(session, until)

    def unused(self, now: float, ttl: float) -> Session | None:
        """A session that has been at rest for longer than `ttl` seconds, or than its grace; None: there is none."""
        for resting in (self._finished, self._all.idle, self._graced):
            if resting:
                session = next(iter(resting))
                kept = ttl if session.lease.grace is None else min(ttl, session.lease.grace)
                if session.lease.last_used < now - kept:
                    return session
        return None

    @property
    def in_use(self) -> int:
        """How many sessions are in use, those that linger included."""
        return self._all.use.busy

    def is_full(self, now: float) -> bool:
        """Whether every place is taken by a session that is in use."""
        self.settle(now)
        return self._all.held >= self._capacity and not self._finished and not self._all.idle

    def text_under_way(self, now: float) -> float:
        """Seconds until no text is under way if no request comes; 0: none is; infinity: a request is being served.

        The text of a session at rest is under way until its client has been silent for `SILENCE` seconds, unless the
        text has ended.
        """
        self.settle(now)
        if self._all.use.busy > len(self._all.lingering):
            return inf
        since = [
            next(reversed(sessions)).lease.last_used for sessions in (self._all.lingering, self._all.idle) if sessions
        ]
        return max(0.0, max(since) + SILENCE - now) if since else 0.0

    def _come_to_rest(self, session: Session, now: float) -> None:
        for group in self._groups(session):
            group.use.freed(now)
        self._add_at_rest(session)

    def _add_at_rest(self, session: Session) -> None:
        if session.lease.grace is not None:
            self._graced[session] = None
        if session.finish_reason is not None:
            self._finished[session] = None
        else:
            for group in self._groups(session):
                group.idle[session] = None
        self._update_over(session)

    def _remove_from_rest(self, session: Session) -> bool:
        """Take a session out of those at rest. Returns False if it was not at rest."""
        if session in self._finished:
            del self._finished[session]
        elif session in self._all.idle:
            for group in self._groups(session):
                del group.idle[session]
        else:
            return False
        self._graced.pop(session, None)
        self._update_over(session)
        return True

    def _update_over(self, session: Session) -> None:
        """Note whether the client of `session` has more sessions than its quota, one of them idle."""
        client, _ = self._groups(session)
        if client.held > self._quota_of(client) and client.idle:
            self._over[client] = None
        else:
            self._over.pop(client, None)

    def _groups(self, session: Session) -> tuple[Group, Group]:
        """The sessions of the client of `session`, and all sessions."""
        return self._clients[session.client], self._all

    def _client(self, name: Hashable) -> Group:
        client = self._clients.get(name)
        if client is None:
            if len(self._clients) > 2 * self._capacity:  # at least half have no session: a rare sweep
                self._clients = {name: client for name, client in self._clients.items() if client.held}
            client = self._clients[name] = Group()
        return client

    def _quota_of(self, client: Group) -> int:
        return self._quota if client.quota is None else client.quota

    def _check_quota(self, client: Group, now: float) -> None:
        quota = self._quota_of(client)
        if not client.use.busy >= quota < self._capacity:
            return
        wait = retry_after(client.expected(now))
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
