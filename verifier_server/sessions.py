"""A session: a text in generation, and its lease in the table of sessions. It outlives its KV slot.

The engine knows of the callers a `client` and a `scope` only, values that it compares. Keys, quotas and usage are in
`Lease`, which the engine does not look at.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from operator import attrgetter
from threading import Lock
from typing import Any, NamedTuple

from specpair.protocol.response_fields import FinishReason
from specpair.speculation.acceptance.judge import Rule
from specpair.speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy
from specpair.speculation.acceptance.token_sources import FORCED, TokenDetails, TokenMark
from specpair.speculation.sampling.row_changes import MakeGrammar, ProcessorChain, following
from specpair.speculation.text_options import TextSpec

_WATCHERS = Lock()  # guards the watchers of all sessions, which change seldom


class CommittedRun(NamedTuple):
    """Committed tokens of one kind.

    `forward`: seconds of the pass of the last one, if they are target-decoded.
    """

    position: int
    tokens: list[int]
    details: TokenDetails
    target_decoded: bool
    forward: float | None


@dataclass(slots=True)
class Lease:
    """The owner of a session in the table, and how long it has been idle. Times are in seconds."""

    owner: str = ""  # the key that owns the session; "": every caller that knows its id
    key: str = ""  # what metrics call the key of the caller who opened it
    request: Any = None  # the prefill that opened it: a repeated one must be equal
    named: bool = True  # whether the client chose its id; else one that was not told it cannot come back
    requests: int = 0  # how many requests on it are being served
    last_used: float = 0.0  # when it was looked up, or came to rest
    counted: int = 0  # how many of its tokens are counted in the usage of the key, or need not be
    number: int = 0  # which session of the table it is, counted from 1; 0 before it is in one


@dataclass(eq=False, slots=True)
class Session:
    """A text in generation. A committed token never changes."""

    # Fixed when the session is made, except that the engine's thread appends to the lists.
    id: str
    tokens: list[int]  # the prompt and the committed tokens after it
    prompt_len: int
    spec: TextSpec  # as requested, with a seed; `rule` holds what applies
    limit: int  # greatest number of tokens, prompt included: there the text ends
    ends: Collection[int]  # ids of the end tokens
    details: TokenDetails = field(init=False)  # of the tokens from `decided_from` on
    decided_from: int = field(init=False)  # position of the first token committed here
    rule: Rule = field(init=False)  # how tokens are judged, from strategy, sampling and threshold
    grammars: MakeGrammar | None = None  # of the vocabulary, if the text has a grammar
    processors: ProcessorChain | None = field(init=False)  # all of them, for the engine's thread; None: there are none

    # Set when the table takes it in, before the engine knows it.
    client: Hashable = None  # who shares the engine with other clients; None: nobody whose share is known
    scope: Hashable = None  # within which its KV cache may be used for other texts

    # Changed by the engine's thread only.
    finish_reason: FinishReason | None = None
    cached: int | None = None  # tokens of its prompt that a slot held when the engine began to read it; None: not yet
    pending: int = 1  # of its last tokens, those that no pass has read: the last one, and forced ones behind it
    target_decoded_time: float = 0.0  # seconds of the last self-continuation step, with the steps of the head in it
    drafted: int = 0  # draft tokens that were judged
    accepted: int = 0  # and those that were accepted
    seconds: float = 0.0  # from when its first request was queued to its last pass
    gone: bool = False  # deleted, expired or replaced

    # Changed by the event loop's thread only.
    lease: Lease = field(default_factory=Lease)
    stopped: bool = False  # whether a stop string has ended it, which the engine does not know
    self_continue: bool = False  # whether it is decoded further while it waits for drafts; its latest opener says so
    cursor: int = field(init=False)  # position of the next draft, for clients that send none

    watchers: tuple[Callable[[], None], ...] = ()  # called from the engine's thread after each change; see `watched`

    def __post_init__(self) -> None:
        spec = self.spec
        self.details = TokenDetails.asked_by(spec)
        self.rule = Rule(spec.strategy, spec.drawn, spec.threshold or 0.0)
        self.processors = following(self.rule.sampling.processors(self.ends, grammars=self.grammars), self.prompt_len)
        self.decided_from = self.cursor = len(self.tokens)

    @property
    def strategy(self) -> Strategy:
        """The strategy that accepts its draft tokens."""
        return self.rule.strategy

    @property
    def cached_tokens(self) -> int:
        """Tokens of its prompt that the KV cache held already; 0 before the prompt is read."""
        return self.cached or 0

    @property
    def whole_rows(self) -> bool:
        """Whether judging needs whole rows of logits, and not only their top logits."""
        return self.processors is not None or self.spec.details_asked[1] is not None

    def resume(self, tokens: Sequence[int]) -> None:
        """Begin with `tokens`, which another session committed after the prompt."""
        self.tokens.extend(tokens)
        self.decided_from = self.cursor = len(self.tokens)
        self.finish_reason = self.ended_at(len(self.tokens))

    def can_replace(self, other: "Session") -> bool:
        """Whether this session can replace `other`, a new session of the same text, all of whose tokens it holds."""
        if self.lease.requests and self.strategy not in DRAFTER_INVARIANT:
            return False  # an earlier client's request may be queued, and the text would depend on it
        if self.spec.details_asked != other.spec.details_asked or self.decided_from > len(other.tokens):
            return False
        return self.tokens[: len(other.tokens)] == other.tokens

    def same_text(self, other: "Session") -> bool:
        """Whether both continue the same prompt with the same sampling, strategy, limit and salt."""
        return (
            self.prompt_len == other.prompt_len
            and self.tokens[: self.prompt_len] == other.tokens[: self.prompt_len]
            and (self.spec.without_details, self.limit) == (other.spec.without_details, other.limit)
        )

    @property
    def empty(self) -> bool:
        """Whether no token was committed here, and the text is not finished."""
        return len(self.tokens) == self.decided_from and self.finish_reason is None

    def notify(self) -> None:
        """Tell the watchers that something has changed. Called from the engine's thread."""
        for watcher in self.watchers:
            watcher()

    def commit(self, tokens: list[int], details: TokenDetails, forward: float = 0.0, lacking: int = 0) -> None:
        """Append `tokens`, up to the limit; the text ends there, or with an end token.

        `forward`: seconds of the pass that they come from.
        `lacking`: of the tokens before the last one, those that the next pass must read again.
        """
        room = self.limit - len(self.tokens)
        self.details.add(details, room)  # before the tokens, since other threads read meanwhile
        if details.sources[-1].self_continued:
            self.target_decoded_time = forward
        self.tokens.extend(tokens[:room])
        self.finish_reason = self.ended_at(len(self.tokens))
        self.pending = 1 + lacking

    def commit_forced(self, *, to_end: bool = True) -> None:
        """Append forced tokens. They need no pass, unless a request wants their logits.

        `to_end`: also those that end the text.
        """
        if self.processors is None or self.finish_reason is not None or self.spec.details_asked != (False, None):
            return
        self.processors.commit(self.tokens)
        tokens = self.processors.certain(self.limit - len(self.tokens) - (not to_end))
        if tokens and tokens[-1] in self.ends and not to_end:
            tokens.pop()
        if tokens:
            pending = self.pending + len(tokens)
            self.commit(tokens, TokenDetails([FORCED] * len(tokens)))
            self.pending = pending

    def details_of(self, position: int, end: int | None = None) -> TokenDetails:
        """The details of the tokens from `position` to before `end`; None: to the last token."""
        end = len(self.tokens) if end is None else end
        return self.details.between(position - self.decided_from, end - self.decided_from)

    @contextmanager
    def watched(self, watcher: Callable[[], None]) -> Iterator[None]:
        """Call `watcher` from the engine's thread after each change while the block runs. Thread-safe."""
        with _WATCHERS:
            self.watchers = (*self.watchers, watcher)
        try:
            yield
        finally:
            with _WATCHERS:
                self.watchers = tuple(other for other in self.watchers if other is not watcher)

    def news(self, position: int) -> Iterator[CommittedRun]:
        """The tokens committed from `position` on, in runs by token source. Thread-safe.

        Forced tokens count to those before them.
        """
        details, begin = self.details_of(position), 0
        kinds: Iterator[TokenMark] = accumulate(details.sources, lambda last, mark: last if mark == FORCED else mark)
        for target_decoded, run in groupby(kinds, attrgetter("self_continued")):
            end = begin + len(list(run))
            tokens = self.tokens[position + begin : position + end]
            forward = self.target_decoded_time if target_decoded else None
            yield CommittedRun(position + begin, tokens, details.between(begin, end), target_decoded, forward)
            begin = end

    def ended_at(self, end: int) -> FinishReason | None:
        """Why the text ends after its first `end` tokens; None: it continues."""
        if self.tokens[end - 1] in self.ends:
            return "stop"
        return "length" if end >= self.limit else None
