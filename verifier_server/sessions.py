"""Sessions: committed tokens, their owner, and the table of all sessions. A session outlives its KV slot.

A session belongs to the API key that opened it: callers with another key cannot see it, and for them the same id names
another session. A session opened without a key belongs to every caller that knows its id.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from speculation.acceptance.explain import Decision
from speculation.acceptance.judge import Rule
from speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy, effective_sampling
from speculation.errors import SessionConflict, UnknownSession
from speculation.protocol.response_fields import FinishReason
from speculation.sampling.sampling import Sampling
from verifier_server.access import Caller
from verifier_server.session_admission import SessionAdmission

CALLERS = 4  # per session that remember it as their latest: callers choose their names, so memory needs a bound


@dataclass(eq=False, slots=True)
class Session:
    """A text being generated. Only the engine's thread changes `tokens`, by appending: a committed token stays."""

    id: str
    tokens: list[int]  # the prompt and the committed tokens after it
    prompt_len: int
    sampling: Sampling  # as requested; `rule` holds what applies
    strategy: Strategy
    limit: int  # greatest number of tokens, prompt included: there the text ends
    threshold: float | None = None  # target probability above which the strategy threshold accepts
    decisions: list[Decision] | None = None  # one for each token from `decided_from` on; None: not asked for
    rule: Rule = field(init=False)  # how tokens are judged, from strategy, sampling and threshold
    judged_at: float = 0.0  # when the last pass for a request ended, on the engine's clock; set by the engine
    request: Any = None  # the prefill that opened it: a repeated one must be equal
    owner: str = ""  # the key that owns it; "": every caller that knows its id
    client: str = ""  # the client for whose quota it counts
    last_used: float = 0.0  # when it was looked up, or came to rest, in seconds; set by the table
    requests: int = 0  # how many requests on it are being served
    cursor: int = field(init=False)  # position of the next draft, for clients that send none
    finish_reason: FinishReason | None = None
    slot: int | None = None  # slot of its KV cache; set by the engine
    held: int = 0  # how many of `tokens` the slot holds, from the first on; set by the engine
    self_continue: bool = False  # whether the verifier decodes it further while it waits for drafts
    # Positions at which ranges of target-decoded tokens begin, end, begin, …
    target_decoded_bounds: list[int] = field(default_factory=list)
    target_decoded_ms: float = 0.0  # milliseconds of the pass that decoded the last target-decoded token
    gone: bool = False  # deleted, expired or replaced; set by the engine
    grace: float | None = None  # seconds that it is kept at rest, if less than the table's `ttl`
    decided_from: int = field(init=False)  # position of the first token committed here, and so of the first decision
    watchers: tuple[Callable[[], None], ...] = ()  # called from the engine's thread after each change

    def __post_init__(self) -> None:
        self.rule = Rule(self.strategy, effective_sampling(self.strategy, self.sampling), self.threshold or 0.0)
        self.decided_from = self.cursor = len(self.tokens)

    def resume(self, tokens: Sequence[int], ends: AbstractSet[int]) -> None:
        """Begin with `tokens` after the prompt, which another session committed. `ends`: the end tokens."""
        self.tokens.extend(tokens)
        self.decided_from = self.cursor = len(self.tokens)
        self._end(ends)

    def can_replace(self, other: "Session") -> bool:
        """Whether this session holds all tokens of `other`, a new one of the same text, and can serve in its place."""
        if self.requests and self.strategy not in DRAFTER_INVARIANT:
            return False  # an earlier client's request may be queued, and the text would depend on it
        if (self.decisions is None) != (other.decisions is None) or self.decided_from > len(other.tokens):
            return False
        return self.tokens[: len(other.tokens)] == other.tokens

    def same_text(self, other: "Session") -> bool:
        """Whether both continue the same prompt with the same sampling, strategy and limit."""
        return (
            self.prompt_len == other.prompt_len
            and self.tokens[: self.prompt_len] == other.tokens[: self.prompt_len]
            and (self.sampling, self.strategy, self.threshold, self.limit)
            == (other.sampling, other.strategy, other.threshold, other.limit)
        )

    @property
    def empty(self) -> bool:
        """Whether no token was committed here, and the text is not finished."""
        return len(self.tokens) == self.decided_from and self.finish_reason is None

    def commit(
        self,
        tokens: list[int],
        ends: AbstractSet[int],
        target_decoded: bool = False,
        forward_ms: float = 0.0,
        decisions: Sequence[Decision] = (),
    ) -> None:
        """Append `tokens`, up to the limit; the text ends there, or with one of the end tokens `ends`.

        `target_decoded`: whether they come from a self-continuation step. `forward_ms`: milliseconds of the pass that
        they come from. `decisions`: one for each token, if the session keeps them.
        """
        room = self.limit - len(self.tokens)
        if self.decisions is not None:
            self.decisions.extend(decisions[:room])  # before the tokens, since other threads read meanwhile
        if target_decoded:
            self.target_decoded_ms = forward_ms
        if target_decoded != (len(self.target_decoded_bounds) % 2 == 1):
            self.target_decoded_bounds.append(len(self.tokens))  # also before the tokens
        self.tokens.extend(tokens[:room])
        self._end(ends)

    def decided(self, position: int, end: int) -> list[Decision | None] | None:
        """The decisions on the tokens from `position` to before `end`; None: not asked for.

        An entry is None for a token that the session began with.
        """
        if self.decisions is None:
            return None
        first = max(position, self.decided_from)
        unknown: list[Decision | None] = [None] * (min(first, end) - position)
        known = self.decisions[first - self.decided_from : max(first, end) - self.decided_from]
        return unknown + known

    def _end(self, ends: AbstractSet[int]) -> None:
        """Set `finish_reason` if the last token is one of the end tokens `ends`, or the limit is reached."""
        if self.tokens[-1] in ends:
            self.finish_reason = "stop"
        elif len(self.tokens) >= self.limit:
            self.finish_reason = "length"


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
    ) -> None:
        """`clock`: in seconds. `ttl`: seconds for which a session at rest is kept. `capacity`: the most sessions in the
        table. `quota`: sessions that one client may have in use at once, and keep when other clients need places
        (default: `capacity`). `on_removed(session)` and `on_replaced(old, new)` are called after a session left.
        """
        self.clock, self.ttl = clock, ttl
        self._on_removed, self._on_replaced = on_removed, on_replaced
        self._places = SessionAdmission(capacity, capacity if quota is None else quota)
        self._sessions: dict[tuple[str, str], Session] = {}
        self._latest: dict[str, tuple[str, str]] = {}  # owner and id of each caller's latest session
        self._callers: dict[tuple[str, str], dict[str, None]] = {}  # callers whose latest session it is, oldest first

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
        self._places.touch(session, self.clock())
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

        If an earlier request has opened a session of this id for the same text, the result is that session, or the
        made one in its place. A new session may displace one at rest. `latest`: whether it becomes the latest
        of `caller`. Raises SessionConflict, and Overloaded with `retry_after`.
        """
        self.expire()
        session_id = session_id or secrets.token_hex(16)
        key = caller.owner, session_id
        session = self._sessions.get(key)
        if session is None:
            displaced = self._places.choose(caller.client, self.clock())
            session = make(session_id)
            if displaced is not None:
                self._drop(displaced)
            self._add(session, caller)
        elif session.request != request:
            session = self._resumed(session, make(session_id), caller)
        session.request = request
        self._places.touch(session, self.clock())
        if latest:
            self._note_latest(caller.name, key)
        return session

    def _resumed(self, old: Session, new: Session, caller: Caller) -> Session:
        """The one of the two sessions that continues the text. Raises SessionConflict for two different texts."""
        if not new.same_text(old):
            raise SessionConflict(f"session {old.id} was opened with another prefill: use a new session_id")
        if old.can_replace(new):
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
        """Keep `session` in the table while a request on it is served, however long it queues.

        Raises Overloaded if its client has too many other sessions in use.
        """
        self.use(session)
        try:
            yield
        finally:
            self.leave(session)

    def use(self, session: Session) -> None:
        """Begin a request on `session`. Raises Overloaded if its client has too many other sessions in use."""
        if not session.requests and self._holds(session):
            self._places.use(session, self.clock())
        session.requests += 1

    def leave(self, session: Session) -> None:
        """End a request on `session`, which may have been removed."""
        session.requests -= 1
        if session.requests or not self._holds(session):
            return
        if session.empty:
            self._drop(session)
        else:
            self._places.rest(session, self.clock())

    def remove(self, session_id: str, owner: str = "") -> Session:
        """Remove a session and return it. Raises UnknownSession."""
        session = self.get(session_id, owner)
        self._drop(session)
        return session

    def discard(self, session: Session) -> None:
        """Remove `session` unless it has left the table already."""
        if self._holds(session):
            self._drop(session)

    def expire(self) -> None:
        """Remove sessions that were at rest for longer than `ttl` seconds, or than their own grace."""
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
