"""Sessions: what was committed, and who it belongs to. A session outlives its KV row.

A session belongs to the key that it was opened with: for whoever has another key there is none of that id, and the same
id names another session. Without a key it belongs to whoever knows its id.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from speculation.acceptance.decisions import Decision
from speculation.acceptance.strategies import DRAFTER_INVARIANT, Rule, Strategy, effective_sampling
from speculation.errors import SessionConflict, UnknownSession
from speculation.sampling.sampling import Sampling
from verifier_server.access import Caller
from verifier_server.session_places import SessionPlaces

CALLERS = 4  # of whom a session can be the latest: names are free, so that without a bound they would fill the memory


@dataclass(eq=False, slots=True)
class Session:
    """One text in the making. `tokens` is only appended to, by the engine's thread; a committed token never changes."""

    id: str
    tokens: list[int]
    prompt_len: int
    sampling: Sampling  # as reported
    strategy: Strategy
    limit: int  # tokens, prompt included, at which the text ends
    threshold: float | None = None  # of the strategy of that name
    decisions: list[Decision] | None = None  # on each token from `decided_from` on; None: nobody asked
    rule: Rule = field(init=False)  # what strategy, sampling and threshold come to
    judged_at: float = 0.0  # when the last pass that ran for a guess ended, on the engine's clock; the engine's
    request: Any = None  # the prefill it came from: a repeated one must be equal
    owner: str = ""  # whose it is, by the key; "": of whoever knows its id
    client: str = ""  # whose quota it counts for
    last_used: float = 0.0  # when it was asked for, or came to rest; the table's
    requests: int = 0  # under way
    cursor: int = field(init=False)  # position of clients that send none
    finish_reason: str | None = None
    row: int | None = None  # where its KV lives; the engine's
    held: int = 0  # how many of `tokens` the row holds; the engine's
    self_continue: bool = False  # whether the verifier goes on by itself while it waits for guesses
    own_from: list[int] = field(default_factory=list)  # where its own steps' tokens begin, end, begin again, …
    own_ms: float = 0.0  # milliseconds of the pass that brought the last of them
    gone: bool = False  # deleted, expired, or done with; the engine's
    grace: float | None = None  # seconds that it outlives its last request, if shorter than others
    decided_from: int = field(init=False)  # the first token of which a decision can be known
    watchers: tuple[Callable[[], None], ...] = ()  # called from the engine's thread when there is news

    def __post_init__(self) -> None:
        self.rule = Rule(self.strategy, effective_sampling(self.strategy, self.sampling), self.threshold or 0.0)
        self.decided_from = self.cursor = len(self.tokens)

    def resume(self, tokens: Sequence[int], ends: AbstractSet[int]) -> None:
        """Begin with `tokens` behind the prompt, which another session of this text has brought."""
        self.tokens.extend(tokens)
        self.decided_from = self.cursor = len(self.tokens)
        self._end(ends)

    def goes_on_as(self, other: "Session") -> bool:
        """Whether this session holds what `other`, one of the same text, is to begin with, and can take its place."""
        if self.requests and self.strategy not in DRAFTER_INVARIANT:
            return False  # a guess of the reader before may be under way, and would decide what comes next
        if (self.decisions is None) != (other.decisions is None) or self.decided_from > len(other.tokens):
            return False
        return self.tokens[: len(other.tokens)] == other.tokens

    def same_text(self, other: "Session") -> bool:
        """Whether both continue the same prompt in the same way."""
        return (
            self.prompt_len == other.prompt_len
            and self.tokens[: self.prompt_len] == other.tokens[: self.prompt_len]
            and (self.sampling, self.strategy, self.threshold, self.limit)
            == (other.sampling, other.strategy, other.threshold, other.limit)
        )

    @property
    def empty(self) -> bool:
        """Whether nothing has come of it: it has the tokens that it was begun with, and goes on."""
        return len(self.tokens) == self.decided_from and self.finish_reason is None

    def commit(
        self,
        tokens: list[int],
        ends: AbstractSet[int],
        own: bool = False,
        forward_ms: float = 0.0,
        decisions: Sequence[Decision] = (),
    ) -> None:
        """Append the target's tokens, and end the text at an end token or at the limit.

        `own`: they come of a step that no guess asked for. `forward_ms`: of the pass that brought them. `decisions`:
        on each of them, where the session keeps these.
        """
        room = self.limit - len(self.tokens)
        if self.decisions is not None:
            self.decisions.extend(decisions[:room])  # before the tokens, too
        if own:
            self.own_ms = forward_ms
        if own != (len(self.own_from) % 2 == 1):
            self.own_from.append(len(self.tokens))  # before the tokens: other threads read while this one writes
        self.tokens.extend(tokens[:room])
        self._end(ends)

    def decided(self, position: int, end: int) -> list[dict[str, Any] | None] | None:
        """The decisions on the tokens from `position` up to `end`, as replies carry them; None: nobody asked.

        Within the list None stands for a token that the session was begun with.
        """
        if self.decisions is None:
            return None
        first = max(position, self.decided_from)
        unknown: list[dict[str, Any] | None] = [None] * (min(first, end) - position)
        known = self.decisions[first - self.decided_from : max(first, end) - self.decided_from]
        return unknown + [each.body() for each in known]

    def _end(self, ends: AbstractSet[int]) -> None:
        if self.tokens[-1] in ends:
            self.finish_reason = "stop"
        elif len(self.tokens) >= self.limit:
            self.finish_reason = "length"


class SessionTable:
    """All sessions by owner and id, with the most recent one of each caller. Used by the event loop's thread only.

    A session whose requests all ended before it had a token is removed: of a prefill that was refused nothing stays.
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
    ) -> None:
        """`clock` and `ttl` in seconds. `quota`: sessions that one client may have in use at once, and keep when others
        need places (default: as many as there are places)."""
        self.clock, self.ttl = clock, ttl
        self._on_removed, self._on_replaced = on_removed, on_replaced
        self._places = SessionPlaces(capacity, capacity if quota is None else quota)
        self._sessions: dict[tuple[str, str], Session] = {}
        self._latest: dict[str, tuple[str, str]] = {}  # by caller
        self._callers: dict[tuple[str, str], dict[str, None]] = {}  # whose latest it is, oldest first

    def __len__(self) -> int:
        return len(self._sessions)

    def all(self) -> list[Session]:
        self.expire()
        return list(self._sessions.values())

    def get(self, session_id: str, owner: str = "") -> Session:
        """Raises UnknownSession, for a session of another owner, too."""
        self.expire()
        session = self._sessions.get((owner, session_id))
        if session is None:
            raise UnknownSession(
                f"no session {session_id}: it was never prefilled, was deleted, expired when idle, or made room for "
                "another one"
            )
        self._places.touch(session, self.clock())
        return session

    def latest(self, caller: Caller) -> Session:
        """The caller's most recent session. Raises UnknownSession."""
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
        """The session that `request` opens, or has opened before, or goes on with: of a text that is known, that of the
        earlier request, or the one that `make` made, in its place. A session at rest may have to go for a new one.
        `latest`: it becomes the latest of `caller`.

        Raises SessionConflict, and Overloaded with `retry_after`.
        """
        self.expire()
        session_id = session_id or secrets.token_hex(16)
        key = caller.owner, session_id
        session = self._sessions.get(key)
        if session is None:
            goes = self._places.choose(caller.client, self.clock())
            session = make(session_id)
            if goes is not None:
                self._drop(goes)
            self._add(session, caller)
        elif session.request != request:
            session = self._resumed(session, make(session_id), caller)
        session.request = request
        self._places.touch(session, self.clock())
        if latest:
            self._note_latest(caller.name, key)
        return session

    def _resumed(self, old: Session, new: Session, caller: Caller) -> Session:
        """The one of the two that the text goes on in. Raises SessionConflict for two texts."""
        if not new.same_text(old):
            raise SessionConflict(f"session {old.id} was opened with another prefill: use a new session_id")
        if old.goes_on_as(new):
            old.self_continue, old.cursor, old.grace = new.self_continue, new.cursor, new.grace
            return old
        self._places.drop(old, self.clock())
        self._add(new, caller)
        self._on_replaced(old, new)
        return new

    def _add(self, session: Session, caller: Caller) -> None:
        session.owner, session.client = caller.owner, caller.client
        self._sessions[session.owner, session.id] = session
        self._places.add(session, self.clock())

    @contextmanager
    def in_use(self, session: Session) -> Iterator[None]:
        """Keep `session` here while a request on it is under way, however long it queues.

        Raises Overloaded when its client has too many others in use.
        """
        self.use(session)
        try:
            yield
        finally:
            self.leave(session)

    def use(self, session: Session) -> None:
        """A request on `session` begins. Raises Overloaded when its client has too many others in use."""
        if not session.requests and self._holds(session):
            self._places.use(session, self.clock())
        session.requests += 1

    def leave(self, session: Session) -> None:
        """A request on `session` is over, which may be gone."""
        session.requests -= 1
        if session.requests or not self._holds(session):
            return
        if session.empty:
            self._drop(session)
        else:
            self._places.rest(session, self.clock())

    def remove(self, session_id: str, owner: str = "") -> Session:
        """Raises UnknownSession."""
        session = self.get(session_id, owner)
        self._drop(session)
        return session

    def discard(self, session: Session) -> None:
        """Remove it if it is still here: not replaced, deleted, or expired."""
        if self._holds(session):
            self._drop(session)

    def expire(self) -> None:
        """Forget sessions idle for longer than `ttl`, or than their own grace."""
        now = self.clock()
        self._places.settle(now)
        while (session := self._places.unused(now, self.ttl)) is not None:
            self._drop(session)

    def _holds(self, session: Session) -> bool:
        return self._sessions.get((session.owner, session.id)) is session

    def _note_latest(self, caller: str, key: tuple[str, str]) -> None:
        before = self._latest.get(caller)
        if before != key:
            if before is not None:
                del self._callers[before][caller]
            self._latest[caller] = key
            callers = self._callers.setdefault(key, {})
            callers[caller] = None
            if len(callers) > CALLERS:
                oldest = next(iter(callers))
                del callers[oldest], self._latest[oldest]

    def _drop(self, session: Session) -> None:
        key = session.owner, session.id
        del self._sessions[key]
        for caller in self._callers.pop(key, ()):
            del self._latest[caller]
        self._places.drop(session, self.clock())
        self._on_removed(session)
