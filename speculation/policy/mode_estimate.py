"""Estimate the tokens per second of each mode from what is known before the first token.

The rate of a mode follows from the time of a target pass, the time of a draft step, the round trip, and the share of
draft tokens accepted. `target` takes one pass a token. `fused` drafts and verifies in turns on the server, with no link
between. `remote` drafts on this end of the link while the verifier works. The last two use the same model as the draft
length (`draft_length.prospects`).
"""

from dataclasses import dataclass
from functools import lru_cache
from math import exp, sqrt
from typing import NamedTuple

from speculation.policy.draft_length import MAX_AUTO, prospects
from speculation.policy.schedule import LOCKSTEP, Mechanisms
from speculation.policy.timing import LatencyModel

TARGET, FUSED, REMOTE = "target", "fused", "remote"  # as the protocol names them
# Share of draft tokens accepted where nothing is known: small models of the target's family reach 0.6 to 0.9.
PRIOR = 0.75
PRIOR_LOOKUP = 0.4  # the same where drafts are looked up in the text
_PRIOR_WEIGHT = 4.0  # draft tokens that a prior counts for
_CERTAIN = 64.0  # compared draft tokens that count at most, because texts change on the way
_SPREADS = 1.3  # standard deviations from the likely to the high share accepted
_STEPS = 100  # shares are rounded to hundredths, so that rates can be cached
_PREPARED = 0.25  # share of rejections after which a draft is ready at once, as measured with both shipped draft models
_ASSUMED_STEP = 0.15  # of a target pass: time of a draft step of which nothing is known
_ASSUMED_PASS, _ASSUMED_WIDER = 50.0, 0.02  # ms, and share of it for a further token, where the verifier reports none
# Logarithmic spreads of the estimates, measured on paced engines over links of 0.4 to 60 ms with both shipped draft
# models.
_SPREAD = {TARGET: 0.10, FUSED: 0.25, REMOTE: 0.30}
_SPREAD_ASSUMED = 1.0  # where a time is assumed
# Share of the modelled rate that was measured there, over texts of 128 tokens: a text begins with short drafts.
_REACHED = {FUSED: 0.93, REMOTE: 0.87}


@dataclass(frozen=True, slots=True)
class PairLatencies:
    """Times that both ends report, in milliseconds."""

    pass_ms: tuple[float, ...]  # of the target's passes over 1, 2, … tokens; empty: not known
    link_ms: float  # round trip
    draft_ms: float | None = None  # a step of the drafter's draft model; None: not known
    served_draft_ms: float | None = None  # a step of the server's draft model; None: not known
    self_continue: bool = True

    def knows(self, mode: str) -> bool:
        """Whether all times that determine the rate of `mode` are known."""
        if mode == TARGET:
            return bool(self.pass_ms)
        return bool(self.pass_ms) and (self.draft_ms if mode == REMOTE else self.served_draft_ms) is not None


@dataclass(slots=True)
class AcceptanceEstimate:
    """Share of draft tokens accepted, among those compared with the target's choice. Old ones fade."""

    prior: float = PRIOR
    weight: float = _PRIOR_WEIGHT  # draft tokens that the prior counts for
    accepted: float = 0.0
    compared: float = 0.0

    def learn(self, accepted: int, compared: int) -> None:
        """Take in compared draft tokens."""
        self.accepted += accepted
        self.compared += compared
        if self.compared > _CERTAIN:
            self.accepted *= _CERTAIN / self.compared
            self.compared = _CERTAIN

    @property
    def likely(self) -> float:
        """The expected share accepted."""
        return (self.accepted + self.prior * self.weight) / (self.compared + self.weight)

    @property
    def high(self) -> float:
        """The greatest share accepted that is consistent with the samples."""
        likely = self.likely
        return min(0.99, likely + _SPREADS * sqrt(likely * (1.0 - likely) / (self.compared + self.weight + 1.0)))


class RateEstimate(NamedTuple):
    """Tokens per second: the likely rate, with a lower and an upper bound."""

    low: float
    likely: float
    high: float


def estimate(mode: str, machines: PairLatencies, agreement: AcceptanceEstimate) -> RateEstimate:
    """The estimate for a mode that was not measured."""
    off = exp(spread(mode, machines))
    likely = rate(mode, machines, agreement.likely)
    low = rate(mode, machines, max(0.0, 2.0 * agreement.likely - agreement.high))
    return RateEstimate(low / off, likely, rate(mode, machines, agreement.high) * off)


def spread(mode: str, machines: PairLatencies) -> float:
    """How far, as a logarithm, an estimate may be off for other reasons than the share accepted."""
    return _SPREAD[mode] if machines.knows(mode) else _SPREAD_ASSUMED


def rate(mode: str, machines: PairLatencies, accepted: float) -> float:
    """Tokens per second in a mode where a share `accepted` of draft tokens is accepted."""
    return _rate(mode, machines, round(accepted * _STEPS))


@lru_cache(512)
def _rate(mode: str, machines: PairLatencies, steps: int) -> float:
    passes = machines.pass_ms or tuple(_ASSUMED_PASS * (1.0 + _ASSUMED_WIDER * more) for more in range(MAX_AUTO + 1))
    latencies = LatencyModel(passes)
    if mode == TARGET:
        return 1e3 / latencies.verify(0)
    draft = machines.draft_ms if mode == REMOTE else machines.served_draft_ms
    latencies.drafted(1, _ASSUMED_STEP * passes[0] if draft is None else draft)
    mechanisms = LOCKSTEP
    if mode == REMOTE:
        latencies.exchanged(machines.link_ms, 0.0, 0.0)
        mechanisms = Mechanisms(self_continue=machines.self_continue)
    chances = [(steps / _STEPS) ** drafts for drafts in range(MAX_AUTO + 2)]
    reached = _REACHED[mode] * prospects(latencies, chances, mechanisms, _PREPARED).rate
    return 1e3 * (max(reached, 1.0 / latencies.verify(0)) if mechanisms.self_continue else reached)
