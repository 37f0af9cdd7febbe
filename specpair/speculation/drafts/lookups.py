"""What draft tokens are looked up in: the text itself, and the client's prediction of the output."""

from collections.abc import Sequence
from typing import Protocol
from weakref import ref

from specpair.speculation.draft import DraftSource
from specpair.speculation.drafts.ngram import NgramIndex
from specpair.speculation.drafts.predicted_output import PredictedOutput
from specpair.speculation.drafts.tree import Proposal, TreeNode


class _Lookup(Protocol):
    def __len__(self) -> int:
        """Tokens of the text that were taken in."""
        ...

    def extend(self, tokens: Sequence[int]) -> None: ...
    def predict(self, tail: Sequence[int]) -> Proposal | tuple[int, float] | None: ...


class Lookups:
    """The lookups of one text, all of which follow it."""

    def __init__(self, prompt_len: int = 0, *, in_text: bool = False, prediction: Sequence[int] | None = None) -> None:
        """`in_text`: whether tokens are looked up in the text.
        `prediction`: ids of the output that the client expects behind a prompt of `prompt_len` tokens; None: there is
            no prediction.
        """
        self._lookups: dict[DraftSource, _Lookup] = {}
        if prediction is not None:
            self._lookups[DraftSource.PREDICTION] = PredictedOutput(prediction, prompt_len)
        if in_text:
            self._lookups[DraftSource.LOOKUP] = NgramIndex()

    def __bool__(self) -> bool:
        return bool(self._lookups)

    def follow(self, text: Sequence[int]) -> None:
        """Take in the tokens of `text`, prompt included, that are new to each lookup."""
        for lookup in self._lookups.values():
            lookup.extend(text[len(lookup) :])

    def found(self, node: TreeNode, tail: Sequence[int]) -> list[TreeNode]:
        """The tokens that are found behind `node`, whose path from the text is `tail`: at most one for each lookup."""
        guesses = ((source, lookup.predict(tail)) for source, lookup in self._lookups.items())
        return [
            TreeNode(guess[0], guess[1], ref(node), source=source) for source, guess in guesses if guess is not None
        ]
