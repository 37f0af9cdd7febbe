"""A session: a text being generated, and its place in the table of sessions. It outlives its KV slot."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from speculation.acceptance.explain import Decision
from speculation.acceptance.judge import Rule
from speculation.acceptance.strategies import DRAFTER_INVARIANT, Strategy
from speculation.acceptance.text_spec import TextSpec
from speculation.acceptance.token_source import ELSEWHERE, SELF_CONTINUED, TokenSource
from speculation.protocol.response_fields import FinishReason
from speculation.sampling.logprobs import TokenLogprobs
from speculation.sampling.processors import LogitProcessor, TextProcessors, following

T = TypeVar("T")
_WATCHERS = Lock()  # guards the watchers of all sessions, which change seldom


class CommittedRun(NamedTuple):
    """Committed tokens of one kind. `forward_ms`: milliseconds of the pass of the last one, if they are target-decoded.

    `decisions`, `logprobs`: one for each token, if asked for.
    """

    position: int
    tokens: list[int]
    sources: list[str]
    target_decoded: bool
    forward_ms: float | None
    decisions: list[Decision | None] | None
    logprobs: list[TokenLogprobs | None] | None


@dataclass(slots=True)
class Place:
    """The place of a session in the table, which alone changes it. Times are in seconds."""

    owner: str = ""  # the key that owns the session; "": every caller that knows its id
    client: str = ""  # the client for whose quota it counts
    key: str = ""  # what metrics call the key of the caller who opened it
    request: Any = None  # the prefill that opened it: a repeated one must be equal
    grace: float | None = None  # for how long it is kept at rest, if less than the table's `ttl`
    requests: int = 0  # how many requests on it are being served
    last_used: float = 0.0  # when it was looked up, or came to rest
    counted: int = 0  # how many of its tokens are counted in the usage of the key, or need not be


@dataclass(eq=False, slots=True)
class Session:
    """A text being generated. A committed token stays."""

    # Fixed when the session is made, except that the engine's thread appends to the lists.
    id: str
    tokens: list[int]  # the prompt and the committed tokens after it
    prompt_len: int
    spec: TextSpec  # as requested, with a seed; `rule` holds what applies
    limit: int  # greatest number of tokens, prompt included: there the text ends
    ends: Collection[int]  # ids of the end tokens
    decisions: list[Decision] | None = field(init=False)  # one for each token from `decided_from` on, if asked for
    token_logprobs: list[TokenLogprobs] = field(default_factory=list)  # if asked for, one for each as `decisions`
    decided_from: int = field(init=False)  # position of the first token committed here, and so of the first decision
    rule: Rule = field(init=False)  # how tokens are judged, from strategy, sampling and threshold
    masks: Sequence[LogitProcessor] = ()  # logit processors of its own, which come first
    processors: TextProcessors | None = field(init=False)  # all of them, for the engine's thread; None: there are none

    # Changed by the engine's thread only.
    finish_reason: FinishReason | None = None
    cached: int | None = None  # tokens of its prompt that a slot held when the engine began to read it; None: not yet
    marks: list[str] = field(default_factory=list)  # where each token committed here came from (`token_source`)
    target_decoded_ms: float = 0.0  # milliseconds of the pass that decoded the last target-decoded token
    drafted: int = 0  # draft tokens that were judged
    accepted: int = 0  # and those that were accepted
    seconds: float = 0.0  # from when its first request was queued to its last pass
    gone: bool = False  # deleted, expired or replaced

    # Changed by the event loop's thread only.
    place: Place = field(default_factory=Place)
    stopped: bool = False  # whether a stop string has ended it, which the engine does not know
    self_continue: bool = False  # whether the verifier decodes it further while it waits for drafts
    cursor: int = field(init=False)  # position of the next draft, for clients that send none

    watchers: tuple[Callable[[], None], ...] = ()  # called from the engine's thread after each change; see `watched`

    def __post_init__(self) -> None:
        spec = self.spec
        self.decisions = [] if spec.explain else None
        self.rule = Rule(spec.strategy, spec.drawn, spec.threshold or 0.0)
        self.processors = following([*self.masks, *self.rule.sampling.processors(self.ends)], self.prompt_len)
        self.decided_from = self.cursor = len(self.tokens)

    @property
    def strategy(self) -> Strategy:
        """By which rule its draft tokens are accepted."""
        return self.rule.strategy

    @property
    def cached_tokens(self) -> int:
        """Tokens of its prompt that were not read, as a slot held them; 0 before it is read."""
        return self.cached or 0

    @property
    def scope(self) -> tuple[str, str]:
        """Within which its KV cache may be used for other texts: the key that owns it, and the salt."""
        return self.place.owner, self.spec.cache_salt

    @property
    def whole_rows(self) -> bool:
        """Whether judging needs whole rows of logits, and not only their top logits."""
        return self.processors is not None or self.spec.logprobs is not None

    def resume(self, tokens: Sequence[int]) -> None:
        """Begin with `tokens` after the prompt, which another session committed."""
        self.tokens.extend(tokens)
        self.decided_from = self.cursor = len(self.tokens)
        self.finish_reason = self.ended_at(len(self.tokens))

    def can_replace(self, other: "Session") -> bool:
        """Whether this session holds all tokens of `other`, a new one of the same text, and can serve in its place."""
        if self.place.requests and self.strategy not in DRAFTER_INVARIANT:
            return False  # an earlier client's request may be queued, and the text would depend on it
        asked = self.spec.explain, self.spec.logprobs
        if asked != (other.spec.explain, other.spec.logprobs) or self.decided_from > len(other.tokens):
            return False
        return self.tokens[: len(other.tokens)] == other.tokens

    def same_text(self, other: "Session") -> bool:
        """Whether both continue the same prompt with the same sampling, strategy, limit and salt."""
        return (
            self.prompt_len == other.prompt_len
            and self.tokens[: self.prompt_len] == other.tokens[: self.prompt_len]
            and (self._text, self.limit) == (other._text, other.limit)
        )

    @property
    def _text(self) -> TextSpec:
        """The options without those of what is told of the text."""
        return replace(self.spec, explain=False, logprobs=None, max_tokens=None)

    @property
    def empty(self) -> bool:
        """Whether no token was committed here, and the text is not finished."""
        return len(self.tokens) == self.decided_from and self.finish_reason is None

    def commit(
        self,
        tokens: list[int],
        marks: Sequence[str],
        forward_ms: float = 0.0,
        decisions: Sequence[Decision] = (),
        logprobs: Sequence[TokenLogprobs] = (),
    ) -> None:
        """Append `tokens`, up to the limit; the text ends there, or with an end token.

        `marks`: where each of them came from. `forward_ms`: milliseconds of the pass that they come from. `decisions`,
        `logprobs`: one for each token, if the session keeps them.
        """
        room = self.limit - len(self.tokens)
        if self.decisions is not None:
            self.decisions.extend(decisions[:room])  # before the tokens, since other threads read meanwhile
        self.token_logprobs.extend(logprobs[:room])
        if TokenSource.of(marks[-1]) is TokenSource.TARGET_DECODED:
            self.target_decoded_ms = forward_ms
        self.marks.extend(marks[:room])
        self.tokens.extend(tokens[:room])
        self.finish_reason = self.ended_at(len(self.tokens))

    def marks_of(self, position: int, end: int) -> list[str]:
        """Where each token from `position` to before `end` came from."""
        return [each or ELSEWHERE for each in self._each(self.marks, position, end)]

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
        """The tokens committed from `position` on, those of self-continuation apart from others. Thread-safe."""
        marks = self.marks_of(position, len(self.tokens))
        for target_decoded, run in groupby(marks, SELF_CONTINUED.__eq__):
            sources = list(run)
            end = position + len(sources)
            forward_ms = self.target_decoded_ms if target_decoded else None
            told = self.decided(position, end), self.logprobs_of(position, end)
            yield CommittedRun(position, self.tokens[position:end], sources, target_decoded, forward_ms, *told)
            position = end

    def decided(self, position: int, end: int) -> list[Decision | None] | None:
        """The decisions on the tokens from `position` to before `end`; None: not asked for.

        An entry is None for a token that the session began with.
        """
        return None if self.decisions is None else self._each(self.decisions, position, end)

    def logprobs_of(self, position: int, end: int) -> list[TokenLogprobs | None] | None:
        """The log probabilities of the tokens, as `decided` returns the decisions."""
        return None if self.spec.logprobs is None else self._each(self.token_logprobs, position, end)

    def _each(self, kept: list[T], position: int, end: int) -> list[T | None]:
        """Those of `kept`, one for each token committed here, from `position` to before `end`; None for others."""
        first = max(position, self.decided_from)
        unknown: list[T | None] = [None] * (min(first, end) - position)
        return [*unknown, *kept[first - self.decided_from : max(first, end) - self.decided_from]]

    def ended_at(self, end: int) -> FinishReason | None:
        """Why the text ends behind its first `end` tokens; None: it goes on."""
        if self.tokens[end - 1] in self.ends:
            return "stop"
        return "length" if end >= self.limit else None
