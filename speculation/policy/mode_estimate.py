"""What each mode should make, in tokens per second, from what is known before the first token.

A mode's rate follows from what a pass of the target and a draft step take, the round trip, and how likely a draft token
is accepted. `target` takes a pass for each token. `fused` drafts and verifies in turns with no link between; `remote`
drafts here, across the link, while the verifier is at work. Both by the model that also sets draft lengths
(`draft_length.prospects`).
"""

from dataclasses import dataclass
from functools import lru_cache
from math import exp, sqrt
from typing import NamedTuple

from speculation.policy.draft_length import MAX_AUTO, prospects
from speculation.policy.schedule import LOCKSTEP, Mechanisms
from speculation.policy.timing import LatencyModel

TARGET, FUSED, REMOTE = "target", "fused", "remote"  # as the protocol names them
PRIOR = (
    0.75  # share of draft tokens accepted where nothing is known: small models of the target's family have 0.6 to 0.9
)
PRIOR_LOOKUP = 0.4  # the same where drafts are looked up in the text
_PRIOR_WEIGHT = 4.0  # draft tokens that a prior counts for
_CERTAIN = 64.0  # draft tokens compared, beyond which more do not make the next ones surer: texts change on the way
_SPREADS = 1.3  # standard deviations from the likely to the high share accepted
_STEPS = 100  # shares are rounded to hundredths, and rates looked up by them
_PREPARED = 0.25  # share of rejections behind which drafts are ready at once: what texts of both shipped models have
_GUESSED_STEP = 0.15  # of a pass of the target: a draft step of which nothing is known
_GUESSED_PASS, _GUESSED_WIDER = 50.0, 0.02  # ms, and share of it for a further token, where the verifier says nothing
# Found on paced engines over links of 0.4 to 60 ms, with both draft models that ship. The first are logarithms.
_SPREAD = {TARGET: 0.10, FUSED: 0.25, REMOTE: 0.30}
_SPREAD_GUESSED = 1.0  # where a time is guessed
# Share of the rate by the model that came of it there, over texts of 128 tokens: a text begins with short drafts.
_REACHED = {FUSED: 0.93, REMOTE: 0.87}


@dataclass(frozen=True, slots=True)
class PairLatencies:
    """What both ends say of themselves. Milliseconds."""

    pass_ms: tuple[float, ...]  # of the target's passes over 1, 2, … tokens; empty: not known
    link_ms: float  # round trip
    draft_ms: float | None = None  # a step of the draft model here; None: not known
    served_draft_ms: float | None = None  # a step of the one on the verifier's side
    self_continue: bool = True

    def knows(self, mode: str) -> bool:
        """Whether all is known that a rate of this mode follows from."""
        if mode == TARGET:
            return bool(self.pass_ms)
        return bool(self.pass_ms) and (self.draft_ms if mode == REMOTE else self.served_draft_ms) is not None


@dataclass(slots=True)
class AcceptanceEstimate:
    """How often draft tokens were accepted, of those that were compared with the target's choice. Old ones fade."""

    prior: float = PRIOR
    weight: float = _PRIOR_WEIGHT  # draft tokens that the prior counts for
    accepted: float = 0.0
    compared: float = 0.0

    def learn(self, accepted: int, compared: int) -> None:
        """Take in draft tokens that were compared."""
        self.accepted += accepted
        self.compared += compared
        if self.compared > _CERTAIN:
            self.accepted *= _CERTAIN / self.compared
            self.compared = _CERTAIN

    @property
    def likely(self) -> float:
        """Share that is accepted."""
        return (self.accepted + self.prior * self.weight) / (self.compared + self.weight)

    @property
    def high(self) -> float:
        """The share at best, within what was seen."""
        likely = self.likely
        return min(0.99, likely + _SPREADS * sqrt(likely * (1.0 - likely) / (self.compared + self.weight + 1.0)))


class RateEstimate(NamedTuple):
    """Tokens per second: what is likely, and how little and how much there may be."""

    low: float
    likely: float
    high: float


def estimate(mode: str, machines: PairLatencies, agreement: AcceptanceEstimate) -> RateEstimate:
    """Of a mode that was not tried."""
    off = exp(spread(mode, machines))
    likely = rate(mode, machines, agreement.likely)
    low = rate(mode, machines, max(0.0, 2.0 * agreement.likely - agreement.high))
    return RateEstimate(low / off, likely, rate(mode, machines, agreement.high) * off)


def spread(mode: str, machines: PairLatencies) -> float:
    """How far, as a logarithm, an estimate may be from what comes, the share accepted aside."""
    return _SPREAD[mode] if machines.knows(mode) else _SPREAD_GUESSED


def rate(mode: str, machines: PairLatencies, accepted: float) -> float:
    """Tokens per second in a mode where a share `accepted` of draft tokens is accepted."""
    return _rate(mode, machines, round(accepted * _STEPS))


@lru_cache(512)
def _rate(mode: str, machines: PairLatencies, steps: int) -> float:
    passes = machines.pass_ms or tuple(_GUESSED_PASS * (1.0 + _GUESSED_WIDER * more) for more in range(MAX_AUTO + 1))
    times = LatencyModel(passes)
    if mode == TARGET:
        return 1e3 / times.verify(0)
    draft = machines.draft_ms if mode == REMOTE else machines.served_draft_ms
    times.drafted(1, _GUESSED_STEP * passes[0] if draft is None else draft)
    mechanisms = LOCKSTEP
    if mode == REMOTE:
        times.exchanged(machines.link_ms, 0.0, 0.0)
        mechanisms = Mechanisms(self_continue=machines.self_continue)
    chances = [(steps / _STEPS) ** drafts for drafts in range(MAX_AUTO + 2)]
    reached = _REACHED[mode] * prospects(times, chances, mechanisms, _PREPARED).rate
    return 1e3 * (max(reached, 1.0 / times.verify(0)) if mechanisms.self_continue else reached)
