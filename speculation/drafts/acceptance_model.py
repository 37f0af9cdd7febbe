"""Learn the chance of acceptance of draft tokens, separately for the draft model's and for looked-up ones."""

from collections.abc import Sequence

from speculation.drafts.calibration import Calibration, recent_after
from speculation.drafts.tree import TreeNode

_OPTIMISTIC, _TRIES = 0.97, 4.0  # optimistic prior chance of the draft model's tokens, and how many it counts for


class AcceptanceModel:
    """A calibration for each kind of draft token. Both share `recent`. All chances are from 0 to 1."""

    def __init__(self) -> None:
        self.model = Calibration()
        self.lookup = Calibration(counted=True)

    @property
    def recent(self) -> float:
        """Fading mean outcome of the last draft tokens of both kinds, from -1 (rejected) to 1 (accepted)."""
        return self.model.recent

    def chance(self, node: TreeNode, recent: float) -> float:
        """Chance that the draft token at `node` is accepted if all before it are."""
        return self._of(node).chance(node.confidence, recent)

    def path(self, path: Sequence[TreeNode], ahead: int = 0) -> list[float]:
        """For each node of a path, and for `ahead` further tokens: chance that it and all before it are accepted."""
        if not any(node.looked_up for node in path):
            return self.model.path([node.confidence for node in path], ahead)
        chances, chance, recent = [], 1.0, self.recent
        for node in path:
            chance *= self.chance(node, recent)
            recent = recent_after(recent, True)
            chances.append(chance)
        for _ in range(ahead):
            chance *= self.model.typical
            chances.append(chance)
        return chances

    def optimistic_chance(self, recent: float) -> float:
        """Chance that the draft model's next token is accepted; optimistic while few of its tokens were compared."""
        tried, known = self.model.count, self.model.chance_of_any(recent)
        return (known * tried + _OPTIMISTIC * _TRIES) / (tried + _TRIES)

    def learn(self, node: TreeNode, accepted: bool) -> None:
        """Take in whether the draft token at `node` was accepted. It counts from the next `fit` on."""
        self._of(node).learn(node.confidence, accepted)
        self.model.recent = self.lookup.recent = self._of(node).recent

    def fit(self) -> None:
        """Refit both calibrations to the outcomes taken in so far."""
        self.model.fit()
        self.lookup.fit()

    def _of(self, node: TreeNode) -> Calibration:
        return self.lookup if node.looked_up else self.model
