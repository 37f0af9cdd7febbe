"""The clients of one verifier: which text each of them has written next, and what is measured of all of them.

All take their texts from one list, so that any number of clients has the same texts written, and as many tokens of each
are measured. A client's first text begins somewhere in its middle, so that some texts begin while others end; measured
is from when the last client has learnt its first token. Times in seconds, rates in tokens a second.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from math import ceil
from typing import NamedTuple

from benchmarks.real_pair.pair import Chooses
from benchmarks.real_pair.recorded import RecordedText

STARTS = 0.5  # seconds within which the clients start
_LEAST = 40  # tokens that a client learns while it is measured, at least, on average
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
    is_first: bool  # of its client
    times: list[float] = field(default_factory=list)  # when the client learnt each token behind these

    @property
    def over(self) -> bool:
        return self.begins + len(self.times) >= len(self.piece.text.written.tokens)

    @property
    def rate(self) -> float:
        """Behind the first token."""
        return (len(self.times) - 1) / (self.times[-1] - self.times[0])


class Outcome(NamedTuple):
    """What was measured."""

    rate: float  # of all clients together
    slow: float  # of a text behind its first token: the 5th percentile
    passes: float  # verifier passes a second
    width: float  # tokens of a pass
    requests: float  # that the verifier answers a second


class Crowd:
    """The clients, and the texts that they have written."""

    def __init__(self, pieces: Sequence[Piece], clients: int) -> None:
        whole = sum(len(each.agrees) for each in pieces)
        self.clients, self._waiting = clients, clients  # and how many have learnt nothing yet
        self._measured = ceil(_LEAST * clients / whole) * whole
        self._pieces, self._rng = cycle(pieces), random.Random(clients)
        self._writings: list[Writing] = []
        self._tokens = 0  # that were learnt since all clients write
        self._began = self._ended = 0.0
        self._passes: list[tuple[float, int, int]] = []  # when each ended, its tokens, and the requests it answered

    def starts(self) -> list[float]:
        """When each client starts."""
        return sorted(self._rng.uniform(0.0, STARTS) for _ in range(self.clients))

    def next(self) -> Writing:
        """The text that a client has written next."""
        piece = next(self._pieces)
        first = len(self._writings) < self.clients
        writing = Writing(piece, self._rng.randrange(len(piece.agrees)) if first else 0, first)
        self._writings.append(writing)
        return writing

    def learnt(self, writing: Writing, tokens: int, now: float) -> None:
        """Note that the client of `writing` learns `tokens` more of its tokens."""
        if self._waiting:
            self._waiting -= writing.is_first and not writing.times
            self._began = now
        else:
            self._tokens += tokens
        writing.times += [now] * tokens
        self._ended = now

    def passed(self, now: float, tokens: int, requests: int) -> None:
        """Note a verifier pass that begins now."""
        self._passes.append((now, tokens, requests))

    @property
    def done(self) -> bool:
        """Whether all that is measured was written."""
        return self._tokens >= self._measured

    @property
    def outcome(self) -> Outcome:
        seconds = self._ended - self._began
        rates = sorted(
            each.rate
            for each in self._writings
            if len(each.times) >= _RATED and self._began < each.times[-1] > each.times[0]
        )
        passes = [each for each in self._passes if each[0] >= self._began]
        return Outcome(
            self._tokens / seconds,
            rates[int(0.05 * len(rates))],
            len(passes) / seconds,
            sum(tokens for _, tokens, _ in passes) / len(passes),
            sum(requests for _, _, requests in passes) / seconds,
        )
