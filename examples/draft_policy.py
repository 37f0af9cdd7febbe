"""A drafting policy of your own: each draft goes on while it is likely to be accepted as a whole.

    PYTHONPATH=examples drafter --policy draft_policy:WhileLikely --prompt "def main():" --max-tokens 100 --stats

docs/research.md says which parts a policy can replace.
"""

from collections.abc import Sequence

from drafter_client import DraftingPolicy
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.schedule import Mechanisms
from specpair.speculation.policy.timing import LatencyModel

LEAST = 0.4  # chance that all tokens of a draft are accepted
FIRST = 4  # draft tokens, before anything was measured


class LikelyLength(DraftLength):
    def __init__(self, fixed: int | None, max_drafts: int) -> None:
        super().__init__(FIRST if fixed is None else fixed, max_drafts)
        self._chosen = fixed is not None  # by --draft-n

    def update(
        self, latencies: LatencyModel, chances: Sequence[float], mechanisms: Mechanisms, next_draft_ready: float
    ) -> None:
        """`chances[k]`: chance that the first k draft tokens are accepted, by the acceptance model."""
        super().update(latencies, chances, mechanisms, next_draft_ready)
        if not self._chosen:
            self.fixed = sum(chance >= LEAST for chance in chances[1:])


class WhileLikely(DraftingPolicy):
    draft_length = LikelyLength
