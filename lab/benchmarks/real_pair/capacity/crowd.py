"""The clients of one verifier: which text each of them has written next, and what is measured of all of them.

What is measured is the steady state, in which some texts begin while others are in their middle or end. Each client has
the same list of texts written, one after the other and again from the start, and begins at a place of its own: the
places divide the list evenly. So at any time the texts under way are a sample of all, and prompts come as often as
texts end. A client's tokens count from when each of them has learnt `_WARM`, since prompts are read in a burst before,
and as many of each client; those that are through go on, so that the others have no less company. The rate is that of
all counted tokens in all the time that clients waited for them, with the wait for the texts in between: a client that
was slow counts for as long as it took.

Times in seconds, rates in tokens a second.
"""

import random
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, cycle, islice
from typing import NamedTuple

from lab.benchmarks.real_pair.pair import Chooses
from lab.benchmarks.real_pair.recorded import RecordedText

STARTS = 0.5  # seconds within which the clients start
_WARM = 32  # tokens that each client learns before any count
_COUNTED = 150  # tokens of a client that count, at least
_RATED = 8  # tokens of a text whose own rate is taken, at least


class Piece(NamedTuple):
    """A recorded text, and what the draft model chooses behind it."""

    text: RecordedText
    choices: Chooses
    agrees: Sequence[bool]  # for each token of the text, whether the draft model chooses it, too


@dataclass
class Writing:
    """A text that a client has written."""

    piece: Piece
    begins: int  # tokens of it that are given with the prompt
    times: list[float] = field(default_factory=list)  # when the client learnt each token behind these

    @property
    def over(self) -> bool:
        return self.begins + len(self.times) >= len(self.piece.text.written.tokens)

    @property
    def rate(self) -> float:
        """Behind the first token."""
        return (len(self.times) - 1) / (self.times[-1] - self.times[0])


class Client:
    """One client, with its texts."""

    def __init__(self, crowd: "Crowd", pieces: Iterator[Piece], begins: int, starts: float) -> None:
        """`pieces`: its texts, in their order.
        `begins`: tokens of the first that are given with the prompt.
        `starts`: when it does.
        """
        self.starts, self.writings = starts, list[Writing]()
        self._crowd, self._pieces, self._begins = crowd, pieces, begins
        self._learnt = 0  # tokens
        self._from: tuple[int, float] | None = None  # tokens that it had learnt when they began to count, and when
        self.waited: float | None = None  # seconds, for all tokens that count; None: it has not learnt them yet

    def next(self) -> Writing:
        """The text that it has written next."""
        self.writings.append(Writing(next(self._pieces), self._begins))
        self._begins = 0
        return self.writings[-1]

    def learnt(self, tokens: int, now: float) -> bool:
        """Note that it learns `tokens` more tokens of its text. Returns whether that is over."""
        crowd, writing = self._crowd, self.writings[-1]
        writing.times += [now] * tokens
        crowd.cold -= self._learnt < _WARM <= self._learnt + tokens
        self._learnt += tokens
        if not crowd.cold and self._from is None:
            self._from = self._learnt, now
            crowd.began = now
        elif self.waited is None and self._from is not None and self._learnt - self._from[0] >= crowd.counted:
            # It learns several tokens at a time: the last of them may be more than count.
            each = (now - self._from[1]) / (self._learnt - self._from[0])
            self.waited = each * crowd.counted
            crowd.counting -= 1
            crowd.ended = now
        return writing.over


class Outcome(NamedTuple):
    """What was measured."""

    rate: float  # of all clients together
    slow: float  # of a text behind its first token: the 5th percentile
    passes: float  # verifier passes a second
    width: float  # tokens of a pass
    requests: float  # that the verifier answers a second


class Crowd:
    """The clients, and what is measured of them."""

    def __init__(self, pieces: Sequence[Piece], clients: int) -> None:
        ends = [*accumulate(len(each.agrees) for each in pieces)]
        self.counted = max(_COUNTED, ends[-1] // clients)  # tokens of each client that count
        self.cold = self.counting = clients  # that have not learnt `_WARM` tokens, and those that count
        self.began = self.ended = 0.0  # when the last client's tokens began to count, and when all were learnt
        rng = random.Random(clients)
        self.clients = list[Client]()
        for number in range(clients):
            place = number * ends[-1] // clients
            text = bisect(ends, place)
            begins = place - (ends[text] - len(pieces[text].agrees))
            self.clients.append(Client(self, islice(cycle(pieces), text, None), begins, rng.uniform(0.0, STARTS)))
        self._passes: list[tuple[float, int, int]] = []  # when each began, its tokens, and the requests it answered

    def passed(self, now: float, tokens: int, requests: int) -> None:
        """Note a verifier pass that begins now."""
        self._passes.append((now, tokens, requests))

    @property
    def done(self) -> bool:
        """Whether all tokens that count were learnt."""
        return not self.counting

    @property
    def outcome(self) -> Outcome:
        waited = sum(each.waited or 0.0 for each in self.clients)
        written = (writing for client in self.clients for writing in client.writings)
        rates = sorted(
            each.rate for each in written if len(each.times) >= _RATED and self.began < each.times[-1] > each.times[0]
        )
        seconds = self.ended - self.began
        passes = [each for each in self._passes if each[0] >= self.began]
        return Outcome(
            self.counted * len(self.clients) ** 2 / waited,
            rates[int(0.05 * len(rates))],
            len(passes) / seconds,
            sum(tokens for _, tokens, _ in passes) / len(passes),
            sum(requests for _, _, requests in passes) / seconds,
        )
