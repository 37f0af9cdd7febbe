"""What capacity is measured with: texts of a known agreement, bounds by the cost model, times between tokens.

Texts. Every client has a prompt of its own, and its text is the toy model's greedy continuation. Agreement is the
chance that the drafter's first choice at a position is the target's token, the text before it being known. It is 0.8,
and so is the confidence of every proposal; a runner-up is the target's token in 0.4 of the other cases. Behind a
wrong draft token, all further ones are wrong. So good draft tokens cannot be told from bad ones, and no choice of draft
lengths beats the best fixed k. (An acceptance rate is less than the agreement: it counts the draft tokens behind a
rejected one.)

Bounds. A pass over n sessions with k draft tokens each takes v(n, k) = a + n (per_sequence + (k + 1) per_token). A
round of k draft tokens brings E(k) tokens, counted by dividing the texts into such rounds. As the agreement is the same
everywhere, these hold for the rate X (tokens per unit of time) of n clients together:

    any scheduling      X <= n max_k E(k) / v(n, k): all in every pass, no idle time, all thinking hidden
    lockstep, k fixed   X <= n E(k) / (v(n, k) + min(a, Z)) and X <= n E(k) / (v(1, k) + Z)

Z is a client's thinking: the time from a response's departure to the arrival of its next request. The min(a, Z): two
passes less than Z apart have no lockstep client in common, so they hold n clients together at most.
Let s be the share of passes behind which the engine idles for Z: a pass holds n (1 + s) / 2 clients at most, and
tokens per second are greatest at s = 1 (all in one pass, then Z) or s = 0 (two groups in turn, one more a per cycle).

Times between tokens. Tokens that arrive together share the gap before them: m tokens behind a gap g count as m gaps of
g / m. A gap between arrivals is g itself: how long a reader waits. A client is measured from the last arrival
before a span of time to the last within it, so that no gap is cut; its rate is the tokens of these gaps by their sum.
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from backends.scripted import BEGIN, ORDER, Script, ScriptedBackend
from lab.simulator.costs.linear import LinearCost
from specpair.drafters.base import Expansion
from specpair.engines.backend import Logits
from specpair.speculation.drafts.tree import Proposal
from specpair.speculation.policy.draft_length import MAX_AUTO

AGREEMENT, SECOND = 0.8, 0.4  # as the module says: of the first choice, and of the runner-up where that is wrong
_JUNK = 7  # the token that a drafter predicts behind a wrong one
_ONE_HOT = [row.copy() for row in np.eye(258, dtype=np.float32)]
_TOY = ScriptedBackend(Script(seed=1))


@cache
def _next_token(context: tuple[int, ...]) -> int:
    return int(_TOY.logits_after(context).argmax())


class KnownTarget(ScriptedBackend):
    """The toy model, greedy only: one-hot logits of its choice, which is computed once for each context."""

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        return _ONE_HOT[_next_token(tuple(tokens[-ORDER:]))]


class KnownOutput:
    """A client's prompt and the target's text behind it, and at which positions the drafter chooses the same token.

    Positions count from the first token of the prompt. The text is computed as far as it is asked for.
    """

    def __init__(self, number: int) -> None:
        self.prompt = [BEGIN, *divmod(number, 256), 3]
        self._tokens = list(self.prompt)
        self._agrees, self._second = [True] * len(self.prompt), [False] * len(self.prompt)
        self._rng = random.Random(number)

    def tokens(self, start: int, end: int) -> list[int]:
        """The tokens of prompt and text from position `start` up to `end`."""
        while len(self._tokens) < end:
            self._tokens.append(_next_token(tuple(self._tokens[-ORDER:])))
            self._agrees.append(self._rng.random() < AGREEMENT)
            self._second.append(self._rng.random() < SECOND)
        return self._tokens[start:end]

    def drafts(self, at: int) -> tuple[int, int]:
        """The drafter's first and second choice for position `at`, the text before it being known."""
        (truth,) = self.tokens(at, at + 1)
        wrong, other = (truth + 1) % 256, (truth + 2) % 256
        if self._agrees[at]:
            return truth, wrong
        return wrong, truth if self._second[at] else other

    def draft(self, at: int, k: int) -> list[int]:
        """A draft of k tokens from position `at` on."""
        accepted = self.gain(at, k) - 1
        return [self.drafts(at + i)[0] if i <= accepted else _JUNK for i in range(k)]

    def gain(self, at: int, k: int) -> int:
        """How many tokens a round with a draft of k tokens from position `at` on brings: 1 to k + 1."""
        self.tokens(at, at + k)
        return 1 + next((i for i in range(k) if not self._agrees[at + i]), k)

    def rounds(self, at: int, end: int, k: int) -> list[int]:
        """The positions at which rounds of k draft tokens begin that bring the text from `at` to `end`."""
        begins = []
        while at < end:
            begins.append(at)
            at += self.gain(at, k)
        return begins


class Knowing:
    """A drafter that predicts the tokens of `KnownOutput.drafts`, and junk behind a wrong token."""

    def __init__(self, text: KnownOutput, width: int) -> None:
        self.width, self._text = width, text

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        return Expansion([self._behind(len(text), tail, runners_up) for tail in tails], len(tails))

    def _behind(self, length: int, tail: Sequence[int], runners_up: int) -> Proposal:
        at = length + len(tail)
        if list(tail) != self._text.tokens(length, at):
            return Proposal(_JUNK, AGREEMENT, _JUNK + 1 if runners_up else None)
        first, second = self._text.drafts(at)
        return Proposal(first, AGREEMENT, second if runners_up else None)


TextRange = tuple[KnownOutput, int, int]  # a text, and the positions from and up to which it counts


def tokens_per_round(parts: Iterable[TextRange], k: int) -> float:
    """E(k): mean tokens of a round with k draft tokens, over these parts of texts."""
    tokens = rounds = 0
    for text, start, end in parts:
        begins = text.rounds(start, end, k)
        rounds += len(begins)
        tokens += begins[-1] + text.gain(begins[-1], k) - start
    return tokens / rounds


@dataclass(frozen=True, slots=True)
class RateBound:
    """Tokens per second that cannot be beaten, and the draft length at which they are reached."""

    rate: float
    k: int


def pass_time(cost: LinearCost, sequences: float, tokens: int) -> float:
    """Seconds of a pass over `tokens` tokens of each of `sequences` sequences, which can be a mean."""
    more_tokens, more_sequences = sequences * tokens - 1, sequences - 1
    return (cost.decode_ms + cost.per_token_ms * more_tokens + cost.per_sequence_ms * more_sequences) / 1e3


def saturated(
    cost: LinearCost, clients: int, gain: Callable[[int], float], ks: Iterable[int] = range(MAX_AUTO + 1)
) -> RateBound:
    """The bound for any scheduling, over the draft lengths `ks`. `gain(k)`: E(k)."""
    return max((RateBound(clients * gain(k) / pass_time(cost, clients, k + 1), k) for k in ks), key=lambda b: b.rate)


def lockstep(cost: LinearCost, clients: int, tokens: float, k: int, thinking: float) -> float:
    """Upper bound of the tokens per second of all clients together in lockstep. `tokens`: E(k)."""
    fixed = (cost.decode_ms - cost.per_token_ms - cost.per_sequence_ms) / 1e3
    shared = pass_time(cost, clients, k + 1) + min(fixed, thinking)
    alone = pass_time(cost, 1, k + 1) + thinking
    return clients * tokens / max(shared, alone)


def server_drafting(target: LinearCost, drafter: LinearCost, clients: int, tokens: float, k: int) -> float:
    """Tokens per second of each of `clients` clients with server-side drafting.

    `tokens`: E(k).

    Optimistic: the draft steps of all clients share passes of the draft model, as their drafts share passes of the
    target, every pass serves all clients, and there is no link.
    """
    return tokens / (k * pass_time(drafter, clients, 1) + pass_time(target, clients, k + 1))


def percentile(values: Sequence[float], share: float) -> float:
    """The least of `values` that at least `share` (0 to 1) of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@dataclass(frozen=True, slots=True)
class Gaps:
    """Times between the tokens, and between the arrivals, of one client, in the unit of the given times."""

    tokens: list[float]  # one for each token: its share of the gap before it
    arrivals: list[float]  # one for each arrival: the whole gap before it

    @classmethod
    def of(cls, times: Sequence[float], start: float, end: float) -> "Gaps":
        """The gaps before the tokens of start < time <= end. `times`: when each token was known, ascending."""
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
    """Rate and gaps of all clients. Gaps in seconds."""

    clients: int
    rate: float  # tokens per second of all clients together
    p50: float  # median of the clients' median gaps between tokens
    p95: float  # median of the clients' 95th percentiles of gaps between tokens
    worst_p95: float  # the greatest of these percentiles
    arrivals_p95: float  # median of the clients' 95th percentiles of gaps between arrivals

    @classmethod
    def of(cls, times: Sequence[Sequence[float]], start: float, end: float) -> "Metrics":
        """`times`: for each client, when it knew each of its tokens. Measured from `start` to `end`. All in seconds."""
        gaps = [Gaps.of(each, start, end) for each in times]
        p50, p95 = ([percentile(each.tokens, share) for each in gaps] for share in (0.5, 0.95))
        arrivals = [percentile(each.arrivals, 0.95) for each in gaps]
        rate = sum(len(each.tokens) / sum(each.arrivals) for each in gaps)
        return cls(len(times), rate, percentile(p50, 0.5), percentile(p95, 0.5), max(p95), percentile(arrivals, 0.5))

    @property
    def each(self) -> float:
        """Mean tokens per second of a client."""
        return self.rate / self.clients
