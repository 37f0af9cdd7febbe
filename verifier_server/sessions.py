"""Sessions: what was committed, and who it belongs to. A session outlives its KV row."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from speculation.acceptance import DRAFTER_INVARIANT, Rule, Strategy, effective_sampling
from speculation.decisions import Decision
from speculation.errors import Overloaded, SessionConflict, UnknownSession
from speculation.sampling import Sampling


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
    last_used: float = 0.0
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


@dataclass(slots=True)
class SessionTable:
    """All sessions by id, with the most recent one of each caller. Used by the event loop's thread only."""

    clock: Callable[[], float]
    ttl: float
    capacity: int
    on_removed: Callable[[Session], None]
    on_replaced: Callable[[Session, Session], None] = lambda _old, _new: None
    _sessions: dict[str, Session] = field(default_factory=dict)
    _latest: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._sessions)

    def all(self) -> list[Session]:
        self.expire()
        return list(self._sessions.values())

    def get(self, session_id: str) -> Session:
        """Raises UnknownSession."""
        self.expire()
        session = self._sessions.get(session_id)
        if session is None:
            raise UnknownSession(f"no session {session_id}: it was never prefilled, was deleted, or expired when idle")
        session.last_used = self.clock()
        return session

    def latest(self, caller: str) -> Session:
        """The caller's most recent session. Raises UnknownSession."""
        session_id = self._latest.get(caller)
        if session_id is None:
            raise UnknownSession(
                "no session_id was given, and you have no latest session (yet, or any more): POST /prefill first"
            )
        return self.get(session_id)

    def open(self, session_id: str | None, caller: str | None, request: Any, make: Callable[[str], Session]) -> Session:
        """The session that `request` opens, or has opened before, or goes on with: of a text that is known, that of the
        earlier request, or the one that `make` made, in its place. It becomes the latest of `caller`, if there is one.

        Raises SessionConflict and Overloaded.
        """
        self.expire()
        session_id = session_id or secrets.token_hex(16)
        session = self._sessions.get(session_id)
        if session is None:
            self.check_room()
            self._sessions[session_id] = session = make(session_id)
        elif session.request != request:
            session = self._resumed(session, make(session_id))
        session.request, session.last_used = request, self.clock()
        if caller is not None:
            self._latest[caller] = session_id
        return session

    def _resumed(self, old: Session, new: Session) -> Session:
        """The one of the two that the text goes on in. Raises SessionConflict for two texts."""
        if not new.same_text(old):
            raise SessionConflict(f"session {old.id} was opened with another prefill: use a new session_id")
        if old.goes_on_as(new):
            old.self_continue, old.cursor, old.grace = new.self_continue, new.cursor, new.grace
            return old
        self._sessions[old.id] = new
        self.on_replaced(old, new)
        return new

    def check_room(self) -> None:
        """Raises Overloaded when the sessions leave room for no more."""
        if len(self._sessions) >= self.capacity:
            raise Overloaded(f"all {self.capacity} sessions are taken: try again later, or raise max_sessions")

    @contextmanager
    def in_use(self, session: Session) -> Iterator[None]:
        """Keep `session` from counting as idle while a request on it is under way, however long it queues."""
        session.requests += 1
        try:
            yield
        finally:
            session.requests -= 1
            session.last_used = self.clock()

    def remove(self, session_id: str) -> Session:
        """Raises UnknownSession."""
        session = self.get(session_id)
        self._drop(session)
        return session

    def discard(self, session: Session) -> None:
        """Remove it if it is still here: not replaced, deleted, or expired."""
        if self._sessions.get(session.id) is session:
            self._drop(session)

    def expire(self) -> None:
        """Forget sessions idle for longer than `ttl`, or than their own grace."""
        now = self.clock()
        for session in [s for s in self._sessions.values() if not s.requests and s.last_used < now - self._lasts(s)]:
            self._drop(session)

    def _lasts(self, session: Session) -> float:
        return self.ttl if session.grace is None else min(session.grace, self.ttl)

    def _drop(self, session: Session) -> None:
        del self._sessions[session.id]
        self._latest = {caller: latest for caller, latest in self._latest.items() if latest != session.id}
        self.on_removed(session)
