"""The table of all sessions, by owner and id.

A session belongs to the API key that opened it: callers with another key cannot see it, and for them the same id names
another session. A session opened without a key belongs to every caller that knows its id.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from specpair.http_service.keys.access import Caller
from specpair.protocol.errors import SessionConflict, UnknownSession
from verifier_server.session_admission import SessionAdmission
from verifier_server.sessions import Lease, Session

CALLERS = 4  # per session that remember it as their latest: callers choose their names, so memory needs a bound


class SessionTable:
    """All sessions by owner and id, with the latest one of each caller. Used by the event loop's thread only.

    A session whose requests all ended before a token was committed is removed: a refused prefill leaves nothing behind.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        ttl: float,
        capacity: int,
        on_removed: Callable[[Session], None],
        on_replaced: Callable[[Session, Session], None] = lambda _old, _new: None,
        *,
        quota: int | None = None,
        check_new: Callable[[], object] = lambda: None,
        on_change: Callable[[], object] = lambda: None,
    ) -> None:
        """`clock`: in seconds.
        `ttl`: seconds for which a session at rest is kept.
        `capacity`: the most sessions in the table.
        `quota`: sessions that one client may have in use at once, and keep when others need room (None: `capacity`).
        `on_removed(session)`, `on_replaced(old, new)`: called after a session left.
        `check_new`: called before a session is made; raises an error if none may be.
        `on_change`: called after the last request on a session has ended, and after a session left.
        """
        self._ttl = ttl
        self._on_removed, self._on_replaced = on_removed, on_replaced
        self._check_new, self._on_change = check_new, on_change
        self.admission = SessionAdmission(clock, capacity, capacity if quota is None else quota)
        self._sessions: dict[tuple[str, str], Session] = {}
        self._latest: dict[str, tuple[str, str]] = {}  # owner and id of each caller's latest session
        self._callers: dict[tuple[str, str], dict[str, None]] = {}  # callers whose latest session it is, oldest first
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._sessions)

    def all(self) -> list[Session]:
        """All sessions that have not expired."""
        self.expire()
        return list(self._sessions.values())

    def get(self, session_id: str, owner: str = "") -> Session:
        """The session of this id. Raises UnknownSession, also for a session of another owner."""
        self.expire()
        session = self._sessions.get((owner, session_id))
        if session is None:
            raise UnknownSession(
                f"no session {session_id}: it was never prefilled, was deleted, expired when idle, or made room for "
                "another one"
            )
        self.admission.touch(session)
        return session

    def latest(self, caller: Caller) -> Session:
        """The caller's latest session. Raises UnknownSession."""
        key = self._latest.get(caller.name)
        if key is None:
            raise UnknownSession(
                "no session_id was given, and you have no latest session (yet, or any more): POST /prefill first"
            )
        return self.get(key[1], caller.owner)

    def open(
        self,
        session_id: str | None,
        caller: Caller,
        request: Any,
        make: Callable[[str], Session],
        *,
        latest: bool = True,
    ) -> Session:
        """The session of `request`: the one that it opened before, else one made by `make`.

        If an earlier request has opened a session of this id for the same text, the result is that session, or the made
        one in its place. A new session may displace one at rest.
        `latest`: whether it becomes the latest of `caller`.

        Raises SessionConflict, and Overloaded or RateLimited with `retry_after`, and what `check_new` raises.
        """
        self.expire()
        named = session_id is not None
        key = caller.owner, session_id or secrets.token_hex(16)
        client = caller.client or None

        def new() -> Session:
            session = make(key[1])
            session.client, session.scope = client, (caller.owner, session.spec.cache_salt)
            session.lease = Lease(caller.owner, caller.key_name, request, named, counted=len(session.tokens))
            return session

        session = self._sessions.get(key)
        if session is None:
            self._check_new()
            displaced = self.admission.choose(client, caller.limits.sessions)
            session = new()
            if displaced is not None:
                self._drop(displaced)
            self._add(session, caller.limits.sessions)
        elif session.lease.request != request:
            session = self._resumed(session, new(), caller.limits.sessions)
        self.admission.touch(session)
        if latest:
            self._note_latest(caller.name, key)
        return session

    def _resumed(self, old: Session, new: Session, quota: int | None) -> Session:
        """The one of the two sessions that continues the text. Raises SessionConflict for two different texts."""
        if not new.same_text(old):
            raise SessionConflict(f"session {old.id} was opened with another prefill: use a new session_id")
        if old.can_replace(new):
            old.cursor = new.cursor
            old.lease.request, old.lease.named = new.lease.request, new.lease.named
            return old
        self.admission.drop(old)
        new.lease.number = old.lease.number
        self._add(new, quota)
        self._on_replaced(old, new)
        return new

    def _add(self, session: Session, quota: int | None) -> None:
        session.lease.number = session.lease.number or next(self._numbers)
        self._sessions[session.lease.owner, session.id] = session
        self.admission.add(session, quota)

    @contextmanager
    def in_use(self, session: Session) -> Iterator[None]:
        """Keep `session` in the table while a request on it is served, however long it queues.

        Raises Overloaded or RateLimited if its client has too many other sessions in use.
        """
        self.use(session)
        try:
            yield
        finally:
            self.leave(session)

    def use(self, session: Session) -> None:
        """Begin a request on `session`. Raises Overloaded or RateLimited if its client has too many others in use."""
        if not session.lease.requests and self._holds(session):
            self.admission.use(session)
        session.lease.requests += 1

    def leave(self, session: Session) -> None:
        """End a request on `session`, which may have been removed."""
        session.lease.requests -= 1
        if session.lease.requests or not self._holds(session):
            return
        if session.empty:
            self._drop(session)
        else:
            self.admission.rest(session)
        self._on_change()

    def remove(self, session_id: str, owner: str = "") -> Session:
        """Remove a session, as its caller asks, and return it. Raises UnknownSession."""
        session = self.get(session_id, owner)
        self._drop(session)
        return session

    def discard(self, session: Session) -> None:
        """Remove `session` unless it has left the table already."""
        if self._holds(session):
            self._drop(session)

    def expire(self) -> None:
        """Remove sessions that were at rest for longer than `ttl` seconds."""
        while (session := self.admission.unused(self._ttl)) is not None:
            self._drop(session)

    def _holds(self, session: Session) -> bool:
        return self._sessions.get((session.lease.owner, session.id)) is session

    def _note_latest(self, caller: str, key: tuple[str, str]) -> None:
        before = self._latest.get(caller)
        if before == key:
            return
        if before is not None:
            del self._callers[before][caller]
        self._latest[caller] = key
        callers = self._callers.setdefault(key, {})
        callers[caller] = None
        if len(callers) > CALLERS:
            oldest = next(iter(callers))
            del callers[oldest], self._latest[oldest]

    def _drop(self, session: Session) -> None:
        key = session.lease.owner, session.id
        del self._sessions[key]
        for caller in self._callers.pop(key, ()):
            del self._latest[caller]
        self.admission.drop(session)
        self._on_removed(session)
        self._on_change()
