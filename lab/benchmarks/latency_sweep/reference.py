"""A reference for a pair's speed: static policies replayed over a measured text.

The replay knows a text only by where the drafter agrees: whether its own choice at a position, given the true text
before, is the target's token there. A draft token behind a wrong one is taken to be wrong, too. There are three
parties, and each knows only what messages have brought:

* The drafter makes one token of its path in each draft step, and cannot break a step off. It drafts along its own
  path, no further than the end of the next draft. Committed tokens that contradict the path make it start anew behind
  them; reading them is part of the step.
* The link takes half a round trip and half the overhead each way.
* The verifier takes drafts in order of arrival. A draft costs nothing if the committed text contradicts it or goes
  beyond it. Of any other draft, the verifier judges the tokens that may still follow, commits the accepted ones and
  one more, and sends them at once. If there are none, it decodes one token, except where drafts are streamed: there it
  self-continues anyway.

Time begins when the drafter knows the first token, which prefill brought. The verifier has known it for one delay of
the link by then.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from heapq import heappop, heappush
from itertools import accumulate
from math import inf

from specpair.speculation.policy.draft_length import MAX_AUTO

MOST_IN_FLIGHT = 6  # drafts in flight at once, of the policies that are tried


@dataclass(frozen=True)
class Trace:
    """One generated text: for each token, whether the drafter, given all tokens before it, would have chosen it too."""

    agrees: Sequence[bool]  # the first item is not used

    def __post_init__(self) -> None:
        if len(self.agrees) < 2:
            raise ValueError(f"a trace holds at least 2 tokens, got {len(self.agrees)}")

    @cached_property
    def next_miss(self) -> list[int]:
        """For each position, the first from there on where the drafter does not agree; the length if there is none.

        The last item is for the position behind the text.
        """
        length = len(self.agrees)
        own = [length, *(length if self.agrees[place] else place for place in reversed(range(length)))]
        return list(accumulate(own, min))[::-1]


@dataclass(frozen=True, slots=True)
class MeasuredLatencies:
    """Measured times of a pair and the link between them, in seconds."""

    draft: float  # a draft step, which makes one token
    verify: Callable[[int], float]  # a verifier pass, by the number of draft tokens that it judges
    rtt: float
    overhead: float = 0.0  # further time of an exchange: half of it on the way there, half on the way back


def pass_times(seconds: Sequence[float]) -> Callable[[int], float]:
    """`MeasuredLatencies.verify` of passes that judge 0, 1, 2, … draft tokens; a straight line beyond the last."""
    last = len(seconds) - 1
    slope = (seconds[-1] - seconds[0]) / max(1, last)
    return lambda drafts: seconds[min(drafts, last)] + slope * max(0, drafts - last)


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of drafter and verifier, the same at every position of the text."""

    name: str
    # Tokens of a draft, without those that are committed by the time of its pass if all drafts in flight are accepted.
    k: int
    in_flight: float = 1  # most drafts in flight at once; inf: drafts are streamed, one leaves every k tokens
    drafts_on: bool = True  # whether it drafts while a draft is in flight
    at_once: bool = False  # whether a response that confirms the path makes it send what it has, even less than k
    # The verifier self-continues unless a draft comes within this share of a verifier pass; None: it never does, and
    # drafts cannot be streamed.
    patience: float | None = None


def policies(k: int) -> Iterator[Policy]:
    """Every policy with draft length k. For k = 0 there are two: lockstep, and the target alone."""
    yield Policy("lockstep", k, drafts_on=False)
    yield Policy("self-continued, eager", k, in_flight=inf, patience=0.0)
    if k:
        yield Policy("overlapped, topped up", k)
        yield Policy("overlapped, at once", k, at_once=True)
        for count in range(2, MOST_IN_FLIGHT + 1):
            yield Policy(f"{count} in flight", k, in_flight=count)
        yield Policy("self-continued, polite", k, in_flight=inf, patience=0.5)
        for count in (1, 2):
            yield Policy(f"self-continued, polite, {count} in flight", k, in_flight=count, patience=0.5)


@dataclass(frozen=True, slots=True)
class PolicyRate:
    """Tokens per second of a policy at its best draft length."""

    policy: str
    k: int
    tokens_per_second: float  # from the first token on, without that one


def best(trace: Trace, times: MeasuredLatencies) -> PolicyRate:
    """The fastest of all policies with draft lengths from 0 to MAX_AUTO."""

    def rate(policy: Policy) -> PolicyRate:
        seconds, tokens = replay(trace, times, policy)[-1]
        return PolicyRate(policy.name, policy.k, (tokens - 1) / seconds)

    every = (rate(policy) for k in range(MAX_AUTO + 1) for policy in policies(k))
    return max(every, key=lambda found: found.tokens_per_second)


def replay(trace: Trace, times: MeasuredLatencies, policy: Policy) -> list[tuple[float, int]]:
    """(seconds, tokens): each time at which the drafter learnt tokens, and how many it knew then."""
    return _Replay(trace, times, policy).run()


class _Replay:
    """The events of one text under one policy. Positions count tokens; an end is the position behind the last one."""

    def __init__(self, trace: Trace, times: MeasuredLatencies, policy: Policy) -> None:
        self._policy, self._length, self._next_miss = policy, len(trace.agrees), trace.next_miss
        self._streams = policy.in_flight == inf
        self._draft, self._delay = times.draft, (times.rtt + times.overhead) / 2
        self._verify, self._alone = cache(times.verify), times.verify(0)
        self._now = -self._delay
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0  # of events: those of one moment keep their order
        # The drafter
        self._known = 0  # committed tokens that it knows
        self._path_end = self._path_miss = 0  # how far it has drafted, and the first position where that is wrong
        self._in_flight_ends: deque[int] = deque()  # ends of the drafts in flight along the path
        self._stepping = self._useful = False  # whether a draft step is under way; whether its token is still wanted
        # The verifier
        self._committed = 0
        self._waiting: deque[tuple[int, int]] = deque()  # of each draft, the end of its right tokens, and its own end
        self._busy = False

    def run(self) -> list[tuple[float, int]]:
        history: list[tuple[float, int]] = []
        self._commit(1)
        while self._known < self._length:
            self._now, _, happen = heappop(self._events)
            before = self._known
            happen()
            if self._known > before:
                history.append((self._now, self._known))
        return history

    def _after(self, seconds: float, happen: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._events, (self._now + seconds, self._count, happen))

    def _learn(self, known: int) -> None:
        if known > min(self._path_miss, self._path_end):  # contradicted or overtaken
            self._path_end, self._path_miss = known, self._next_miss[known]
            self._useful = False
            self._in_flight_ends.clear()
        while self._in_flight_ends and self._in_flight_ends[0] < known:
            self._in_flight_ends.popleft()
        self._known = known
        if self._policy.at_once and not self._in_flight_ends and self._path_end > known:
            self._send(known)
        self._draft_on()

    def _draft_on(self) -> None:
        """Send the drafts that are ready while more may be in flight; begin a draft step towards the next one."""
        if self._known == self._length or (not self._policy.k and self._policy.patience is not None):
            return
        last = self._length - 1  # the last token needs no draft: it comes with the pass over those before
        while not self._in_flight_ends or self._in_flight_ends[-1] < last:
            since = self._in_flight_ends[-1] + 1 - self._streams if self._in_flight_ends else self._known
            if self._path_end < min(since + self._policy.k, last):
                if not self._stepping and (self._policy.drafts_on or not self._in_flight_ends):
                    self._stepping = self._useful = True
                    self._after(self._draft, self._stepped)
                return
            if len(self._in_flight_ends) >= self._policy.in_flight:
                return
            self._send(since)

    def _stepped(self) -> None:
        self._stepping = False
        self._path_end += self._useful
        self._draft_on()

    def _send(self, start: int) -> None:
        """Send the draft that begins behind the first `start` tokens."""
        self._in_flight_ends.append(self._path_end)
        if start <= self._path_miss:  # else the verifier will find it contradicted
            right = min(self._path_end, self._next_miss[start])
            self._after(self._delay, partial(self._arrive, right, self._path_end))

    def _arrive(self, right: int, end: int) -> None:
        self._waiting.append((right, end))
        if not self._busy:
            self._judge()

    def _judge(self) -> None:
        while self._waiting and not self._busy:
            right, end = self._waiting.popleft()
            left = end - self._committed
            if self._committed <= right and left >= self._streams:
                self._busy = True
                self._after(self._verify(left), partial(self._commit, right + 1))

    def _commit(self, committed: int) -> None:
        self._busy, self._committed = False, committed
        self._after(self._delay, partial(self._learn, committed))
        if committed == self._length:
            return
        self._judge()
        if self._policy.patience is not None and not self._busy:
            # The verifier waits for a draft. If none comes in time, the wait counts as part of the step,
            # as if the step had begun at once.
            spared = self._policy.patience * self._alone
            self._after(spared, partial(self._self_continue, committed, self._alone - spared))

    def _self_continue(self, idle_since: int, rest: float) -> None:
        if not self._busy and self._committed == idle_since:
            self._busy = True
            self._after(rest, partial(self._commit, idle_since + 1))
