"""What capacity is measured with: texts of a known agreement, bounds by the cost model, times between tokens.

Texts. Every client has a text of its own, greedy, by the toy model behind a prompt of its own. The drafter names a
token with a chance of 0.8, always with a confidence of 0.8, and else names it second with a chance of 0.4; behind a
wrong draft it is lost. So good drafts cannot be told from bad ones, and no choice of drafts beats the best fixed k.

Bounds. A pass over n sessions with k drafts each takes v(n, k) = a + n (per_row + (k + 1) per_token). A round of k
drafts brings E(k) tokens, counted by cutting the texts' own agreement into such rounds. With a chance of agreement that
is the same everywhere, these hold for the rate X of n clients:

    any scheduling      X <= n max_k E(k) / v(n, k): all in every pass, no idle time, all thinking hidden
    lockstep, k fixed   X <= n E(k) / (v(n, k) + min(a, Z)) and X <= n E(k) / (v(1, k) + Z), Z being a client's thinking

The min(a, Z): two passes less than Z apart have no lockstep client in common, so they hold n clients together at most.
Let s be the share of passes behind which the engine idles for Z: a pass holds n (1 + s) / 2 clients at most, and
tokens per second are greatest at s = 1 (all in one pass, then Z) or s = 0 (two groups in turn, one more a per cycle).

Times between tokens. Tokens that arrive together share the gap before them: m tokens behind a gap g count as m times
g / m. A gap between arrivals is g itself: how long a reader waits. A client is watched from the last arrival
before a span of time to the last within it, so that no gap is cut; its rate is the tokens of these gaps by their sum.
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from backends.base import Logits
from backends.scripted import BEGIN, ORDER, Script, ScriptedBackend
from drafters.base import Expansion
from simulation.paced import Cost
from speculation.drafts.tree import Prediction
from speculation.policy.draft_length import MAX_AUTO

AGREEMENT, SECOND = 0.8, 0.4
_JUNK = 7  # what a drafter says that is lost
_ONE_HOT = [row.copy() for row in np.eye(258, dtype=np.float32)]
_TOY = ScriptedBackend(Script(seed=1))


@cache
def _next_token(context: tuple[int, ...]) -> int:
    return int(_TOY.logits_after(context).argmax())


class Target(ScriptedBackend):
    """The toy model, greedy only: its choice in place of its logits, computed once for each context."""

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        return _ONE_HOT[_next_token(tuple(tokens[-ORDER:]))]


class KnownText:
    """The target's text behind a client's own prompt, as far as it was asked for, and where the drafter agrees."""

    def __init__(self, number: int) -> None:
        self.prompt = [BEGIN, *divmod(number, 256), 3]
        self._tokens = list(self.prompt)
        self._agrees, self._second = [True] * len(self.prompt), [False] * len(self.prompt)
        self._rng = random.Random(number)

    def tokens(self, start: int, end: int) -> list[int]:
        """Those from `start` up to `end`, counted from the prompt's first."""
        while len(self._tokens) < end:
            self._tokens.append(_next_token(tuple(self._tokens[-ORDER:])))
            self._agrees.append(self._rng.random() < AGREEMENT)
            self._second.append(self._rng.random() < SECOND)
        return self._tokens[start:end]

    def drafts(self, at: int) -> tuple[int, int]:
        """The drafter's first and second choice of the token at `at`, the text before it being known."""
        (truth,) = self.tokens(at, at + 1)
        wrong, other = (truth + 1) % 256, (truth + 2) % 256
        if self._agrees[at]:
            return truth, wrong
        return wrong, truth if self._second[at] else other

    def draft(self, at: int, k: int) -> list[int]:
        """A draft of k tokens behind `at` tokens."""
        accepted = self.gain(at, k) - 1
        return [self.drafts(at + i)[0] if i <= accepted else _JUNK for i in range(k)]

    def gain(self, at: int, k: int) -> int:
        """How many tokens a draft of k tokens behind `at` tokens brings."""
        self.tokens(at, at + k)
        return 1 + next((i for i in range(k) if not self._agrees[at + i]), k)

    def rounds(self, at: int, end: int, k: int) -> list[int]:
        """Where the rounds of k drafts begin that bring the text from `at` to `end`."""
        begins = []
        while at < end:
            begins.append(at)
            at += self.gain(at, k)
        return begins


class Knowing:
    """A drafter that knows its text as far as the module says."""

    def __init__(self, text: KnownText, width: int) -> None:
        self.width, self._text = width, text

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: bool) -> Expansion:
        return Expansion([self._behind(len(text), tail, runners_up) for tail in tails], len(tails))

    def _behind(self, length: int, tail: Sequence[int], runners_up: bool) -> Prediction:
        at = length + len(tail)
        if list(tail) != self._text.tokens(length, at):
            return Prediction(_JUNK, AGREEMENT, _JUNK + 1 if runners_up else None)
        first, second = self._text.drafts(at)
        return Prediction(first, AGREEMENT, second if runners_up else None)


TextRange = tuple[KnownText, int, int]  # a text from a place up to another


def tokens_per_round(parts: Iterable[TextRange], k: int) -> float:
    """E(k), over these parts of texts."""
    tokens = rounds = 0
    for text, start, end in parts:
        begins = text.rounds(start, end, k)
        rounds += len(begins)
        tokens += begins[-1] + text.gain(begins[-1], k) - start
    return tokens / rounds


@dataclass(frozen=True, slots=True)
class Bound:
    """Tokens per second that cannot be beaten, and the draft length at which they are reached."""

    rate: float
    k: int


def pass_ms(cost: Cost, sequences: float, tokens: int) -> float:
    """Milliseconds of a pass over so many tokens for each of so many sequences; a mean may be no whole number."""
    return cost.decode_ms + cost.per_token_ms * (sequences * tokens - 1) + cost.per_sequence_ms * (sequences - 1)


def saturated(cost: Cost, clients: int, gain: Callable[[int], float], ks: Iterable[int] = range(MAX_AUTO + 1)) -> Bound:
    """Whatever the scheduling. `gain(k)`: E(k)."""
    return max((Bound(1e3 * clients * gain(k) / pass_ms(cost, clients, k + 1), k) for k in ks), key=lambda b: b.rate)


def lockstep(cost: Cost, clients: int, tokens: float, k: int, thinking_ms: float) -> float:
    """Tokens per second of clients that draft, send and wait. `tokens`: E(k)."""
    fixed = cost.decode_ms - cost.per_token_ms - cost.per_sequence_ms
    shared = pass_ms(cost, clients, k + 1) + min(fixed, thinking_ms)
    alone = pass_ms(cost, 1, k + 1) + thinking_ms
    return 1e3 * clients * tokens / max(shared, alone)


def server_drafting(target: Cost, drafter: Cost, clients: int, tokens: float, k: int) -> float:
    """Tokens per second of one client whose drafts the server makes, too. `tokens`: E(k).

    In favour of it: the clients' draft steps go through the draft model together, as their drafts go through the
    target, no pass is ever half full, and there is no link.
    """
    return 1e3 * tokens / (k * pass_ms(drafter, clients, 1) + pass_ms(target, clients, k + 1))


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that so large a share of them does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@dataclass(frozen=True, slots=True)
class Gaps:
    """Times between what one client learnt, in the unit of its times."""

    tokens: list[float]  # one for each token
    arrivals: list[float]  # one for each moment at which something arrived

    @classmethod
    def of(cls, times: Sequence[float], start: float, end: float) -> "Gaps":
        """Of tokens known at `times`, which ascend, those with start < time <= end."""
        tokens: list[float] = []
        arrivals: list[float] = []
        last, at = None, 0
        while at < len(times) and times[at] <= end:
            moment, count = times[at], 0
            while at < len(times) and times[at] == moment:
                at, count = at + 1, count + 1
            if last is not None and moment > start:
                arrivals.append(moment - last)
                tokens += [(moment - last) / count] * count
            last = moment
        return cls(tokens, arrivals)


@dataclass(frozen=True, slots=True)
class Metrics:
    """What so many clients came to. Times in milliseconds."""

    clients: int
    rate: float  # tokens per second, all together
    p50: float  # between tokens: of the median client
    p95: float
    worst_p95: float  # of the client that has the worst
    arrivals_p95: float  # between arrivals: of the median client

    @classmethod
    def of(cls, times: Sequence[Sequence[float]], start: float, end: float) -> "Metrics":
        """`times`: of each client, in seconds, when it knew each of its tokens; looked at from `start` to `end`."""
        gaps = [Gaps.of(each, start, end) for each in times]
        p50, p95 = ([1e3 * percentile(each.tokens, share) for each in gaps] for share in (0.5, 0.95))
        arrivals = [1e3 * percentile(each.arrivals, 0.95) for each in gaps]
        rate = sum(len(each.tokens) / sum(each.arrivals) for each in gaps)
        return cls(len(times), rate, percentile(p50, 0.5), percentile(p95, 0.5), max(p95), percentile(arrivals, 0.5))

    @property
    def each(self) -> float:
        """Tokens per second of one client, on average."""
        return self.rate / self.clients
