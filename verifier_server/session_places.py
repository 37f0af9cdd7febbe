"""Places in the table of sessions: who has how many, which sessions are at rest, and which one goes for another.

A session is in use while a request on it is under way, a stream of its tokens included, and one that the verifier
continues by itself for two seconds more, as long as it does so. Else it is at rest, finished or idle. When all places
are taken, a new session gets that of one at rest:

* of a finished one, the one longest at rest first;
* of an idle one, the least recently used first: the client's own if it has its quota of sessions already, else one of
  a client that has more than its quota, else anybody's.

A client has no more sessions in use at once than its quota, and so cannot take all places for good: whatever it does,
the rest of them is for others. Nothing here takes longer the more sessions there are.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from speculation.errors import Overloaded

if TYPE_CHECKING:
    from verifier_server.sessions import Session

LINGER = 2.0  # seconds for which the scheduler continues a session that nothing is heard of
_SHARE = 0.2  # of the latest one in the mean time between two places that come free


class Turnover:
    """How many sessions are in use, and how often one of them comes to rest. Seconds, on one clock."""

    def __init__(self) -> None:
        self.busy = 0
        self._since = 0.0  # when one came to rest, or the first came into use
        self._ends = 0  # how many have come to rest
        self._every = 0.0  # mean time between two that did

    def taken(self, now: float) -> None:
        """One more is in use."""
        if not self.busy:
            self._since = now
        self.busy += 1

    def freed(self, now: float) -> None:
        """One fewer is."""
        self.busy -= 1
        if self._ends:
            self._every += (_SHARE if self._ends > 1 else 1.0) * (now - self._since - self._every)
        self._ends += 1
        self._since = now

    def expected(self, now: float) -> float:
        """How long it will take until the next comes to rest: as long as it took, or as none has for now."""
        return max(self._every, now - self._since)


Sessions = OrderedDict["Session", None]


@dataclass(eq=False, slots=True)
class Client:
    """What one client has."""

    held: int = 0  # sessions in the table
    use: Turnover = field(default_factory=Turnover)
    idle: Sessions = field(default_factory=OrderedDict)  # the least recently used first
    lingering: Sessions = field(default_factory=OrderedDict)  # in use though nothing is asked, the oldest first


class SessionPlaces:
    """Every session of a table in one of four states: in use, lingering, finished, idle. Times in seconds."""

    def __init__(self, capacity: int, quota: int) -> None:
        self._capacity, self._quota = capacity, quota
        self._held = 0
        self._use = Turnover()
        self._clients: dict[str, Client] = {}
        self._over: dict[Client, None] = {}  # those with idle sessions and more than their quota
        # By the time at which they came to rest, the first first.
        self._lingering: Sessions = OrderedDict()
        self._finished: Sessions = OrderedDict()
        self._idle: Sessions = OrderedDict()
        self._graced: Sessions = OrderedDict()  # of these two, those that go sooner: all after the same time

    def choose(self, name: str, now: float) -> "Session | None":
        """Which session has to go for a new one of the client of that name; None: there is room.

        Raises Overloaded, with `retry_after`.
        """
        self.settle(now)
        client = self._client(name)
        self._check_quota(client, now)
        if self._held < self._capacity:
            return None
        if self._finished:
            return next(iter(self._finished))
        if client.held >= self._quota and client.idle:
            return next(iter(client.idle))
        if self._over:
            return next(iter(next(iter(self._over)).idle))
        if self._idle:
            return next(iter(self._idle))
        raise Overloaded(
            f"all {self._capacity} sessions are taken and in use: try again later, or raise max_sessions",
            retry_after=_whole(_expected(self._use, self._lingering, now)),
        )

    def add(self, session: "Session", now: float) -> None:
        """A new session, at rest."""
        client = self._client(session.client)
        client.held += 1
        self._held += 1
        session.last_used = now
        self._lay(session, client)

    def drop(self, session: "Session", now: float) -> None:
        """A session that leaves the table, in whatever state."""
        self.settle(now)
        client = self._clients[session.client]
        if session in self._lingering or not self._lift(session, client):
            self._lingering.pop(session, None)
            client.lingering.pop(session, None)
            client.use.freed(now)
            self._use.freed(now)
        client.held -= 1
        self._held -= 1
        self._review(client)

    def use(self, session: "Session", now: float) -> None:
        """A request comes to a session that has none. Raises Overloaded when its client has its quota in use."""
        self.settle(now)
        client = self._clients[session.client]
        if session in self._lingering:
            del self._lingering[session], client.lingering[session]
            return
        self._check_quota(client, now)
        self._lift(session, client)
        client.use.taken(now)
        self._use.taken(now)

    def rest(self, session: "Session", now: float) -> None:
        """The last request on a session is over."""
        self.settle(now)
        session.last_used = now
        client = self._clients[session.client]
        if session.self_continue and session.finish_reason is None:
            self._lingering[session] = client.lingering[session] = None
        else:
            self._rests(session, client, now)

    def touch(self, session: "Session", now: float) -> None:
        """A session at rest was asked for: it was used now."""
        if session in self._finished or session in self._idle:
            session.last_used = now
            client = self._clients[session.client]
            self._lift(session, client)
            self._lay(session, client)

    def settle(self, now: float) -> None:
        """Let sessions come to rest that nothing was heard of for long enough."""
        while self._lingering:
            session = next(iter(self._lingering))
            until = session.last_used + LINGER
            if until > now:
                return
            client = self._clients[session.client]
            del self._lingering[session], client.lingering[session]
            session.last_used = until
            self._rests(session, client, until)

    def unused(self, now: float, ttl: float) -> "Session | None":
        """A session that has been at rest for longer than `ttl`, or than its grace."""
        for resting in (self._finished, self._idle, self._graced):
            if resting:
                session = next(iter(resting))
                lasts = ttl if session.grace is None else min(ttl, session.grace)
                if session.last_used < now - lasts:
                    return session
        return None

    def _rests(self, session: "Session", client: Client, now: float) -> None:
        client.use.freed(now)
        self._use.freed(now)
        self._lay(session, client)

    def _lay(self, session: "Session", client: Client) -> None:
        if session.grace is not None:
            self._graced[session] = None
        if session.finish_reason is not None:
            self._finished[session] = None
        else:
            self._idle[session] = client.idle[session] = None
        self._review(client)

    def _lift(self, session: "Session", client: Client) -> bool:
        """Whether it was at rest; it is not any more."""
        if session in self._finished:
            del self._finished[session]
        elif session in self._idle:
            del self._idle[session], client.idle[session]
        else:
            return False
        self._graced.pop(session, None)
        self._review(client)
        return True

    def _review(self, client: Client) -> None:
        if client.held > self._quota and client.idle:
            self._over[client] = None
        else:
            self._over.pop(client, None)

    def _client(self, name: str) -> Client:
        client = self._clients.get(name)
        if client is None:
            if len(self._clients) > 2 * self._capacity:  # half of them have nothing: they go all at once, and seldom
                self._clients = {name: client for name, client in self._clients.items() if client.held}
            client = self._clients[name] = Client()
        return client

    def _check_quota(self, client: Client, now: float) -> None:
        if client.use.busy >= self._quota < self._capacity:
            raise Overloaded(
                f"{client.use.busy} sessions of yours are in use, and one client may have {self._quota}: try again "
                "later, or raise max_sessions_per_client",
                retry_after=_whole(_expected(client.use, client.lingering, now)),
            )


def _expected(use: Turnover, lingering: Sessions, now: float) -> float:
    """Seconds until a session of these comes to rest: exactly, where nothing is asked of any."""
    expected = [next(iter(lingering)).last_used + LINGER - now] if lingering else []
    if use.busy > len(lingering):
        expected.append(use.expected(now))
    return min(expected)


def _whole(seconds: float) -> int:
    return max(1, math.ceil(seconds))
