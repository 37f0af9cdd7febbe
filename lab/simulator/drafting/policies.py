"""Policies of the draft length, each in a few lines."""

from lab.simulator.drafting.lengths import LengthPolicy
from specpair.speculation.policy.timing import LatencyModel


class Constant(LengthPolicy):
    """Always the same length."""

    def __init__(self, length: int = 4) -> None:
        self._length = length

    def most(self, latencies: LatencyModel) -> int:
        return self._length


class SpecDecPlusPlus(LengthPolicy):
    """Stops where a rejection is likelier than a threshold (Huang, Guo, Wang: SpecDec++, arXiv 2405.19715).

    In place of the trained head that predicts the chance of acceptance there is the drafter's acceptance model.
    """

    def __init__(self, threshold: float = 0.7, most: int = 16) -> None:
        self._threshold, self._most = threshold, most

    def most(self, latencies: LatencyModel) -> int:
        return self._most

    def enough(self, chance: float) -> bool:
        return 1.0 - chance > self._threshold


class AcceptanceBackoff(LengthPolicy):
    """Grows after a draft that was accepted whole, shrinks after another, as the heuristic schedule of Hugging Face
    Transformers does with 2 and 1."""

    def __init__(self, first: int = 5, least: int = 1, most: int = 16, grow: int = 2, shrink: int = 1) -> None:
        self._length, self._least, self._most = first, least, most
        self._grow, self._shrink = grow, shrink

    def most(self, latencies: LatencyModel) -> int:
        return self._length

    def judged(self, drafted: int, accepted: int) -> None:
        if drafted:
            changed = self._length + self._grow if accepted == drafted else self._length - self._shrink
            self._length = min(max(changed, self._least), self._most)


class LatencyBackoff(LengthPolicy):
    """As long as drafting takes no longer than a share of what a round takes anyway, its round trip and its pass: long
    drafts over a slow link, short ones over a fast link and with a slow draft model."""

    def __init__(self, share: float = 0.5, least: int = 1, most: int = 16) -> None:
        self._share, self._least, self._most = share, least, most

    def most(self, latencies: LatencyModel) -> int:
        if not latencies.draft_known:
            return self._least
        fits = int(self._share * (latencies.link + latencies.queue + latencies.verify(0)) / latencies.draft())
        return min(max(fits, self._least), self._most)
