"""Estimates the tokens per second of each mode before the first token.

The rate of a mode follows from the time of a verifier pass, the time of a draft step, the round trip, and the
acceptance rate. `target` takes one pass a token. `fused` drafts and verifies in turns on the server, with no link
between. `remote` drafts on this end of the link while the verifier works. Both use the same model as the draft length
(`draft_length.prospects`). `lookup` is `remote` without the draft model: its draft tokens are looked up, which takes no
draft step, and the verifier decodes by itself where nothing is found.

An acceptance rate here is the share of accepted ones among compared draft tokens: those that were compared with the
target's choice. Draft tokens behind a rejected one are not.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import exp, sqrt
from typing import NamedTuple

from specpair.speculation.policy.draft_length import MAX_AUTO, prospects
from specpair.speculation.policy.schedule import LOCKSTEP, mechanisms_of
from specpair.speculation.policy.timing import LatencyModel

TARGET, FUSED, REMOTE = "target", "fused", "remote"  # as the protocol names them
LOOKUP = "lookup"  # mode `remote`, where all draft tokens are looked up
# Acceptance rate where nothing is known: small models of the target's family reach 0.6 to 0.9.
PRIOR = 0.75
PRIOR_LOOKUP = 0.4  # the same where drafts are looked up in the text
PRIOR_PREDICTION = 0.9  # the same where the client predicts the text
_PRIOR_WEIGHT = 4.0  # draft tokens that a prior counts for
_CERTAIN = 64.0  # most compared draft tokens that count, because texts change on the way; older ones fade
_SPREADS = 1.3  # standard deviations from the likely to the high acceptance rate
_STEPS = 100  # acceptance rates are rounded to hundredths, so that rates of modes can be cached
_PREPARED = 0.25  # share of rejections after which a draft is ready at once, as measured with both shipped draft models
_ASSUMED_STEP = 0.15  # time of a draft step of which nothing is known, as a share of a verifier pass
_ASSUMED_PASS, _ASSUMED_WIDER = 0.05, 0.02  # seconds of a pass not reported, and share added by each further token
# What a round takes at both ends beside draft steps, the pass and the link. On
# cores of its own it is hidden behind a longer pass; a target of a millisecond or two a step is faster alone.
_ROUND = 0.002  # seconds
# Logarithm of the factor by which an estimate may be off, by mode. Measured on paced engines over links of 0.4 to 60 ms
# with both shipped draft models.
_SPREAD = {TARGET: 0.10, FUSED: 0.25, REMOTE: 0.30, LOOKUP: 0.25}
_SPREAD_ASSUMED = 1.0  # where a time is assumed
# Measured share of the modelled rate, on the same engines and texts of 128 tokens: a text begins with short drafts.
_REACHED = {FUSED: 0.93, REMOTE: 0.87, LOOKUP: 0.87}
# Looked-up draft tokens come in runs: where a text repeats another one, about this share of them is accepted.
_IN_RUNS = 0.9
# What trees of drafts add to that where wide passes cost hardly more than narrow ones (`lab.benchmarks.real_pair`: 1.04
# to 1.25 over links of 0.4 and 20 ms), and how many times the narrowest such a pass of how many draft tokens may take.
_BY_TREES, _FLAT, _WIDE = 1.15, 1.1, 8


@dataclass(frozen=True, slots=True)
class PairLatencies:
    """Times that both ends report, in seconds."""

    pass_times: tuple[float, ...]  # verifier passes over 1, 2, … tokens; empty: not known
    link: float  # the round trip
    draft: float | None = None  # a step of the drafter's draft model; None: not known
    served_draft: float | None = None  # a step of the server's draft model; None: not known
    self_continue: bool = True  # whether the verifier may self-continue in mode `remote`
    # Where draft steps and passes take turns in mode `remote`, on the same cores: what a token of the text takes that
    # the draft model has to read before it drafts. None: the ends share no cores, and reading keeps nobody waiting.
    read: float | None = None
    trees: bool = False  # whether the verifier takes trees of drafts in mode `remote`
    served_depth: int = MAX_AUTO  # tokens that the server drafts in a row, at most
    # A step of the target's own head, with which the verifier continues by itself in mode `remote`, and the tokens that
    # it drafts in a row, at most. None: not known.
    head: float | None = None
    head_depth: int = 0

    def knows(self, mode: str) -> bool:
        """Whether all times that determine the rate of `mode` are known."""
        if mode in (TARGET, LOOKUP):
            return bool(self.pass_times)
        return bool(self.pass_times) and (self.draft if mode == REMOTE else self.served_draft) is not None


@dataclass(slots=True)
class AcceptanceEstimate:
    """The acceptance rate of one draft model, learnt from compared draft tokens. Old ones fade."""

    prior: float = PRIOR  # the acceptance rate expected before any draft token was compared
    weight: float = _PRIOR_WEIGHT  # draft tokens that the prior counts for
    accepted: float = 0.0  # of the compared draft tokens
    compared: float = 0.0  # a faded one counts as a fraction

    def learn(self, accepted: int, compared: int) -> None:
        """Learn from `compared` draft tokens, of which `accepted` were accepted."""
        self.accepted += accepted
        self.compared += compared
        if self.compared > _CERTAIN:
            self.accepted *= _CERTAIN / self.compared
            self.compared = _CERTAIN

    @property
    def likely(self) -> float:
        """The expected acceptance rate, 0 to 1; the prior while no draft token was compared."""
        return (self.accepted + self.prior * self.weight) / (self.compared + self.weight)

    @property
    def high(self) -> float:
        """An upper bound of the acceptance rate, at most 0.99: `_SPREADS` standard deviations above `likely`."""
        likely = self.likely
        return min(0.99, likely + _SPREADS * sqrt(likely * (1.0 - likely) / (self.compared + self.weight + 1.0)))


class RateEstimate(NamedTuple):
    """Tokens per second: the likely rate, with a lower and an upper bound."""

    low: float
    likely: float
    high: float


def estimate(mode: str, machines: PairLatencies, acceptance: AcceptanceEstimate) -> RateEstimate:
    """Tokens per second to expect of `mode` before it is measured, from latencies and acceptance rate, with bounds."""
    off = exp(spread(mode, machines))
    likely = rate(mode, machines, acceptance.likely)
    low = rate(mode, machines, max(0.0, 2.0 * acceptance.likely - acceptance.high))
    return RateEstimate(low / off, likely, rate(mode, machines, acceptance.high) * off)


def spread(mode: str, machines: PairLatencies) -> float:
    """Logarithm of the factor by which an estimate may be off for other reasons than the acceptance rate."""
    return _SPREAD[_alike(mode, machines)] if machines.knows(mode) else _SPREAD_ASSUMED


def _alike(mode: str, machines: PairLatencies) -> str:
    """The mode whose measurements hold for `mode`: on shared cores, `remote` also drafts and verifies in turns."""
    return FUSED if mode == REMOTE and machines.read is not None else mode


def rate(mode: str, machines: PairLatencies, acceptance_rate: float) -> float:
    """Tokens per second to expect of `mode` at this acceptance rate, 0 to 1. That of LOOKUP is the share of all tokens
    that lookup finds."""
    if mode != LOOKUP:
        return _rate(mode, machines, round(acceptance_rate * _STEPS))
    inside = max(_IN_RUNS, acceptance_rate)
    runs = acceptance_rate / inside  # share of the tokens that are in runs
    return 1.0 / sum(
        part / _rate(mode, machines, round(each * _STEPS)) for part, each in ((runs, inside), (1.0 - runs, 0.0))
    )


@lru_cache(512)
def _rate(mode: str, machines: PairLatencies, steps: int) -> float:
    """`rate` at an acceptance rate of `steps` hundredths."""
    passes = machines.pass_times or tuple(_ASSUMED_PASS * (1.0 + _ASSUMED_WIDER * more) for more in range(MAX_AUTO + 1))
    latencies = LatencyModel(passes)
    if mode == TARGET:
        return 1.0 / latencies.verify(0)
    draft = {REMOTE: machines.draft, FUSED: machines.served_draft, LOOKUP: 0.0}[mode]
    latencies.drafted(1, _ASSUMED_STEP * passes[0] if draft is None else draft)
    mechanisms, work = LOCKSTEP, 0.0
    if mode in (REMOTE, LOOKUP):
        same_cores = mode == REMOTE and machines.read is not None
        work = _ROUND if machines.read is not None else max(0.0, _ROUND - passes[0])
        latencies.exchanged(machines.link + work, 0.0, 0.0)
        mechanisms = mechanisms_of(shares_cores=same_cores, self_continue=machines.self_continue, may_change_mode=True)
    chances = [(steps / _STEPS) ** drafts for drafts in range(MAX_AUTO + 2)]
    if mode == FUSED:
        chances[machines.served_depth + 1 :] = [0.0] * max(0, MAX_AUTO + 1 - machines.served_depth)
    reached = _REACHED[_alike(mode, machines)] * prospects(latencies, chances, mechanisms, _PREPARED).rate
    takes_trees = mode == REMOTE and machines.trees and machines.read is None
    if takes_trees and latencies.verify(_WIDE) <= _FLAT * latencies.verify(0):
        reached *= _BY_TREES
    return max(reached, _by_itself(latencies, machines, work)) if mechanisms.self_continue else reached


def _by_itself(latencies: LatencyModel, machines: PairLatencies, work: float) -> float:
    """Tokens per second of self-continuation, with the target's head where that is faster. `work`: seconds of a round
    beside the pass."""
    best, tokens = 0.0, 0.0
    for depth in range(1 + (0 if machines.head is None else machines.head_depth)):
        tokens += PRIOR**depth
        best = max(best, tokens / (latencies.verify(depth) + depth * (machines.head or 0.0) + work))
    return best


WARM_UP = 8  # tokens at the beginning of a stretch that are not timed
TURN, _SPAN = 24, 0.1  # least tokens and seconds of a measured rate: several rounds, because tokens come in bursts
ENOUGH = 16  # timed tokens below which a rate is ignored, since a network hiccup may dominate it
_LATEST = 256.0  # most tokens of a mode that count; older ones fade


@dataclass(slots=True)
class ModeMeasurement:
    """Timed tokens of a mode over one link, their seconds, and its compared and accepted draft tokens."""

    tokens: float = 0.0
    seconds: float = 0.0
    accepted: float = 0.0  # of the compared draft tokens
    compared: float = 0.0  # draft tokens that were compared with the target's choice
    remembered: bool = False  # whether everything measured is from an earlier run

    @property
    def rate(self) -> float:
        """Tokens per second; 0.0 where nothing was timed."""
        return self.tokens / self.seconds if self.seconds > 0.0 else 0.0

    @property
    def is_turn(self) -> bool:
        """Whether it is long enough for `rate` to count. A shorter one may cover a single burst of tokens."""
        return self.tokens >= TURN and (self.remembered or self.seconds >= _SPAN)

    @property
    def worth_remembering(self) -> bool:
        """Whether to remember it for later runs: there are enough timed tokens, or enough compared draft tokens."""
        return (self.tokens >= ENOUGH and self.seconds >= _SPAN) or self.compared >= WARM_UP

    def learn(self, tokens: int, seconds: float, accepted: int, compared: int) -> None:
        """Take in a stretch of text: timed tokens, their seconds, and accepted ones among compared draft tokens."""
        self.tokens += tokens
        self.seconds += seconds
        self.accepted += accepted
        self.compared += compared
        self.remembered = False
        if self.tokens > _LATEST:
            self.fade(_LATEST / self.tokens)

    def fade(self, keep: float) -> None:
        """Multiply all counts, and the seconds, by `keep` (0 to 1)."""
        self.tokens, self.seconds = keep * self.tokens, keep * self.seconds
        self.accepted, self.compared = keep * self.accepted, keep * self.compared
