"""How far drafts are believed: those of the draft model and those that were looked up, each by how its own fared."""

from collections.abc import Sequence

from speculation.drafts.calibration import Calibration
from speculation.drafts.tree import TreeNode

_AT_BEST, _TRIES = 0.97, 4.0  # what a model is given credit for, and by how many drafts it has to lose it


class AcceptanceModel:
    """A calibration for each kind of draft. How the last ones went counts for either."""

    def __init__(self) -> None:
        self.model = Calibration()
        self.lookup = Calibration(counted=True)

    @property
    def recent(self) -> float:
        """How the last drafts went, of either kind: from -1 (all fell) to 1 (all stood)."""
        return self.model.recent

    def then(self, recent: float, stood: bool) -> float:
        """`recent` after one more draft."""
        return self.model.then(recent, stood)

    def chance(self, node: TreeNode, recent: float) -> float:
        """Chance that the draft at `node` stands where all before it are right."""
        return self._of(node).chance(node.confidence, recent)

    def path(self, path: Sequence[TreeNode], ahead: int = 0) -> list[float]:
        """Chance, for each node of a path and for so many more behind them, that it stands with all before it."""
        found = [node.found for node in path]
        if not any(found):
            return self.model.path([node.confidence for node in path], ahead)
        chances, chance, recent = [], 1.0, self.recent
        for node in path:
            chance *= self.chance(node, recent)
            recent = self.then(recent, True)
            chances.append(chance)
        for _ in range(ahead):
            chance *= self.model.typical
            chances.append(chance)
        return chances

    def at_best(self, recent: float) -> float:
        """Chance that the model's next draft stands, whatever it says: thought high while it was hardly compared."""
        tried, known = self.model.count, self.model.chance_of_any(recent)
        return (known * tried + _AT_BEST * _TRIES) / (tried + _TRIES)

    def learn(self, node: TreeNode, stood: bool) -> None:
        """Take in one outcome; `fit` makes it count."""
        self._of(node).learn(node.confidence, stood)
        recent = self._of(node).recent
        self.model.recent = self.lookup.recent = recent

    def fit(self) -> None:
        """Believe drafts as far as those did that were compared."""
        self.model.fit()
        self.lookup.fit()

    def _of(self, node: TreeNode) -> Calibration:
        return self.lookup if node.found else self.model
