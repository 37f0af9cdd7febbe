"""What one request does when: spans of the draft model, of messages, and of the verifiers that write it.

A timeline notes what happens and changes nothing: what it wraps is called with or without it. Times in seconds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from specpair.engines.backend import Entry
from verifier_server.engine.composer import BatchItem
from verifier_server.sessions import Session

T = TypeVar("T")


class Lane(StrEnum):
    """Where a span is."""

    DRAFTER = "drafter"  # the draft model, be it on the device or on the server
    WIRE = "wire"
    VERIFIER = "verifier"


class What(StrEnum):
    """What is done, or waited for."""

    DEVICE = "wait for a device"
    SLOT = "wait for a draft slot"
    READ = "read"  # the draft model reads the text
    DRAFT = "draft"
    UP = "up"  # a message to the verifier
    DOWN = "down"  # a message from the verifier
    MOVE = "KV cache"  # it moves from the verifier that read the prompt
    QUEUE = "queue"  # from a request's arrival to its first pass
    PREFILL = "prefill"  # a pass that reads a part of the prompt
    PASS = "pass"  # any other pass

    @property
    def lane(self) -> Lane:
        if self in (What.DEVICE, What.SLOT, What.READ, What.DRAFT):
            return Lane.DRAFTER
        return Lane.WIRE if self in (What.UP, What.DOWN, What.MOVE) else Lane.VERIFIER


@dataclass(slots=True)
class Span:
    """Something that takes time."""

    what: What
    begin: float
    end: float
    node: str = ""  # the verifier
    tokens: int = 0  # that a pass fed; steps of a draft
    proposed: int = 0  # draft tokens that a pass judged
    accepted: int = 0  # of these
    committed: int = 0  # tokens that a pass brought
    rows: int = 0  # sequences of the pass


class Clock(Protocol):
    """The part of an event loop that a timeline needs."""

    @property
    def now(self) -> float: ...


class Untold:
    """The timeline of a request whose spans nobody wants."""

    def until(self, what: What, do: Callable[[], T]) -> Callable[[], T]:
        """Note what begins now and ends when the result is called, which calls `do`."""
        return do


UNTOLD = Untold()


class Timeline(Untold):
    """The spans of a request, in the order of their ends, but for passes, which are noted as they begin."""

    def __init__(self, clock: Clock) -> None:
        self.spans: list[Span] = []
        self._clock = clock
        self._drafting: Span | None = None  # the last one of drafts: steps without a gap are one span
        self._judging: tuple[Span, Session, int, int] | None = None  # a pass, and what its session had before

    def until(self, what: What, do: Callable[[], T]) -> Callable[[], T]:
        begin = self._clock.now

        def then() -> T:
            self._add(what, begin)
            return do()

        return then

    def passes(self, node: str, entry: Entry, part: BatchItem, rows: int) -> None:
        """Note a verifier pass that begins now and feeds `entry`, beside others: it has `rows` sequences."""
        self._settle()
        now, session, request = self._clock.now, part.sequence.session, part.run
        if request is not None and request.started is None and request.submitted < now:
            self.spans.append(Span(What.QUEUE, request.submitted, now, node))
        reads = entry.start < session.prompt_len
        judged = max(0, len(entry.tokens) - entry.logits_from - 1)
        what, fed = What.PREFILL if reads else What.PASS, len(entry.tokens)
        span = Span(what, now, math.inf, node, fed, judged, rows=rows)
        self.spans.append(span)
        self._judging = span, session, session.accepted, len(session.tokens)

    def passed(self) -> None:
        """Note the end of the pass. What it brought is known when the next one begins."""
        if self._judging is not None:
            span = self._judging[0]
            span.end = min(span.end, self._clock.now)

    def left(self) -> None:
        """Note that the verifier has nothing more to do with the request: a pass under way ends here."""
        self.passed()
        self._settle()

    def _settle(self) -> None:
        """Note what the last pass brought, which is known by now."""
        if self._judging is not None:
            span, session, accepted, tokens = self._judging
            span.accepted, span.committed = session.accepted - accepted, len(session.tokens) - tokens
            self._judging = None

    def _add(self, what: What, begin: float) -> None:
        now, last = self._clock.now, self._drafting
        if what is What.DRAFT and last is not None and last.end == begin:
            last.end, last.tokens = now, last.tokens + 1
        elif now > begin:
            span = Span(what, begin, now, tokens=int(what is What.DRAFT))
            self.spans.append(span)
            if what is What.DRAFT:
                self._drafting = span


class Timelines:
    """Gives timelines to so many requests at once, at most: the memory that they take is bounded."""

    def __init__(self, clock: Clock, most: int) -> None:
        self._clock, self._left = clock, most

    def begin(self) -> Timeline | None:
        """One for a request that begins now; None: there are enough."""
        if not self._left:
            return None
        self._left -= 1
        return Timeline(self._clock)

    def over(self, timeline: Timeline | None) -> None:
        """Note that a request is over."""
        self._left += timeline is not None
