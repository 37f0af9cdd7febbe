"""How many tokens the target's own head predicts for a self-continuation step, by measured costs and survival."""

from collections.abc import Sequence

from specpair.speculation.policy.cost_by_width import CostByWidth
from specpair.speculation.policy.timing import Mean

# Share of predictions that are expected to be accepted where those before are, before any was judged, and how many
# judged ones that counts for.
_EXPECTED, _WEIGHT = 0.7, 4
_FADING = 0.98  # weight of the past in these shares
_TRIED = 64  # steps without a prediction after which one is made again
_GAIN = 1.03  # least gain in tokens per second: an estimate has errors


class HeadLength:
    """Learns from self-continuation steps of all sessions. Times are in seconds."""

    def __init__(self, pass_times: Sequence[float], step_time: float, depth: int) -> None:
        """`pass_times`: of passes over 1, 2, … tokens; empty if unknown.
        `step_time`: of a step of the head.
        `depth`: tokens that it predicts, at most; 0: there is no head.
        """
        self._pass_times = CostByWidth.of(pass_times)
        self._step = Mean(_FADING)
        self._step.learn(step_time)
        self._accepted = [Mean(_FADING) for _ in range(depth)]  # by depth: share of those behind accepted ones
        for each in self._accepted * _WEIGHT:
            each.learn(_EXPECTED)
        self._without = 0  # steps since the last prediction

    def best(self, sessions: int, width: int, others: int = 0) -> int:
        """How many tokens to predict for each of `sessions` in a pass over `width` tokens without them.

        `others`: further sessions in the pass, which wait for the head, too.
        """
        if not self._accepted or not self._pass_times or not sessions:
            return 0
        brought, chance, found = float(sessions + others), float(sessions), 0
        best = _GAIN * brought / self._pass_times.at(width)
        for length, share in enumerate(self._accepted, 1):
            chance *= share.value
            brought += chance
            rate = brought / (self._pass_times.at(width + length * sessions) + length * self._step.value)
            if rate > best:
                best, found = rate, length
        self._without = 0 if found else self._without + 1
        if self._without > _TRIED:
            found, self._without = 1, 0
        return found

    def learn(self, judged: int, accepted: int) -> None:
        """Learn from a step that judged `judged` predictions and accepted `accepted`."""
        for depth in range(min(judged, accepted + 1)):
            self._accepted[depth].learn(depth < accepted)

    def took(self, seconds: float) -> None:
        """Learn from a step of the head."""
        self._step.learn(seconds)
