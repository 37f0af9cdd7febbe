"""What the passes of rounds take, as measured: those of the target, and the draft passes of each source."""

from collections.abc import Iterable, Mapping, Sequence

from specpair.speculation.draft import DraftSource
from specpair.speculation.policy.cost_by_width import CostByWidth
from specpair.speculation.policy.timing import NARROW, Curve

_DISTURBED = 1.5  # multiple of the expected time from which a draft pass counts as disturbed, and as no longer
_LISTED = (*range(1, 34), 64, 128, 256, 512, 1024)  # widths of the target's passes whose costs are listed


class PassCosts:
    """Seconds of passes by width: the tokens of all texts."""

    def __init__(self, pass_times: Sequence[float], step_times: Mapping[DraftSource, float]) -> None:
        """`pass_times`: of the target's passes over 1, 2, … tokens, as timed at load; empty if unknown.
        `step_times`: of a draft pass over one token, by each source that there is.
        """
        self._target, self._step_times = Curve(pass_times[:NARROW]), step_times
        if pass_times:
            self._target.learn(0, pass_times[0])
        self._times: CostByWidth | None = None
        self.forget_draft()

    def forget_draft(self) -> None:
        """Forget the times of draft passes, so that one slow pass does not stop drafting for ever."""
        self._drafts = {source: Curve() for source in self._step_times}
        for source, seconds in self._step_times.items():
            if seconds > 0.0:
                self._drafts[source].learn(0, seconds)

    @property
    def sources(self) -> Iterable[DraftSource]:
        """What drafts."""
        return self._step_times.keys()

    @property
    def target_times(self) -> CostByWidth:
        """Seconds of target passes over 1, 2, … tokens; empty while unknown."""
        if self._times is None:
            self._times = CostByWidth((width, self._target.at(width - 1)) for width in _LISTED)
        return self._times

    def target(self, tokens: int) -> float:
        """Seconds of a target pass."""
        return self.target_times.at(tokens)

    def draft(self, tokens: int, source: DraftSource) -> float:
        """Seconds of a draft pass."""
        return self._drafts[source].at(tokens - 1)

    def target_ran(self, tokens: int, seconds: float) -> None:
        """Learn from a pass of the target."""
        self._target.learn(tokens - 1, seconds)
        self._times = None

    def draft_ran(self, tokens: int, seconds: float, source: DraftSource) -> None:
        """Learn from a draft pass. Disturbances can only lengthen it."""
        expected = self.draft(tokens, source)
        self._drafts[source].learn(tokens - 1, min(seconds, _DISTURBED * expected) if expected else seconds)
