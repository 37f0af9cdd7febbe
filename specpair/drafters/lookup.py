"""A drafter without a model: looks up where the last tokens occurred earlier in the text (n-gram lookup)."""

from collections.abc import Sequence

from specpair.drafters.base import Expansion
from specpair.speculation.drafts.text_lookup import TextLookup
from specpair.speculation.drafts.tree import Proposal

NAME = "n-gram lookup"


class NgramDrafter:
    """If the last tokens occurred earlier in the text, predicts the token that followed them there."""

    def __init__(self, width: int = 1) -> None:
        self.width = width
        self._index = TextLookup()

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        self._index.extend(text[len(self._index) :])
        return Expansion([self._predict(text, tail) for tail in tails], len(tails))

    def _predict(self, text: Sequence[int], tail: Sequence[int]) -> Proposal:
        found = self._index.predict(tail, most=2)
        if not found:  # a proposal needs a token; one of confidence 0 is never sent
            return Proposal(tail[-1] if tail else text[-1], 0.0)
        return Proposal(*found[0], runner_up=found[1][0] if len(found) > 1 else None)
