"""How long the passes of both models take, by their width: as timed at load, then as learnt from those that ran."""

from collections.abc import Sequence

from specpair.speculation.policy.cost_by_width import CostByWidth
from specpair.speculation.policy.timing import NARROW, Curve

_DISTURBED = 1.5  # multiple of the expected time from which a draft pass counts as disturbed, and as no longer
_LISTED = (*range(1, 34), 64, 128, 256, 512, 1024)  # widths of the target's passes whose costs are listed


class PassCosts:
    """Seconds of passes. Widths are in tokens, all texts together."""

    def __init__(self, pass_times: Sequence[float], step_time: float) -> None:
        """`pass_times`: of the target's passes over 1, 2, … tokens, as timed at load; empty if unknown.
        `step_time`: of a pass of the draft model over one token.
        """
        self._target, self._step_time = Curve(pass_times[:NARROW]), step_time
        if pass_times:
            self._target.learn(0, pass_times[0])
        self._times: CostByWidth | None = None
        self.forget_draft()

    def forget_draft(self) -> None:
        """Forget what draft passes took: one that was disturbed must not keep others from being tried."""
        self._draft = Curve()
        if self._step_time > 0.0:
            self._draft.learn(0, self._step_time)

    @property
    def target_times(self) -> CostByWidth:
        """Of the target's passes over 1, 2, … tokens; empty while they are unknown."""
        if self._times is None:
            self._times = CostByWidth((width, self._target.at(width - 1)) for width in _LISTED)
        return self._times

    def target(self, tokens: int) -> float:
        """Of a pass of the target."""
        return self.target_times.at(tokens)

    def draft(self, tokens: int) -> float:
        """Of a pass of the draft model."""
        return self._draft.at(tokens - 1)

    def target_ran(self, tokens: int, seconds: float) -> None:
        """Learn from a pass of the target."""
        self._target.learn(tokens - 1, seconds)
        self._times = None

    def draft_ran(self, tokens: int, seconds: float) -> None:
        """Learn from a pass of the draft model. What disturbs one only ever lengthens it."""
        expected = self.draft(tokens)
        self._draft.learn(tokens - 1, min(seconds, _DISTURBED * expected) if expected else seconds)
