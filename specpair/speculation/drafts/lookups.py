"""What draft tokens are looked up in: the text itself, and the client's prediction of the output."""

from collections.abc import Sequence
from typing import Protocol
from weakref import ref

from specpair.speculation.acceptance.draft import DraftSource
from specpair.speculation.drafts.ngram import NgramIndex
from specpair.speculation.drafts.predicted_output import PredictedOutput
from specpair.speculation.drafts.tree import Prediction, TreeNode


class _Source(Protocol):
    def __len__(self) -> int: ...
    def extend(self, tokens: Sequence[int]) -> None: ...
    def predict(self, tail: Sequence[int]) -> Prediction | tuple[int, float] | None: ...


class Lookups:
    """The places to look up, each of which follows the text."""

    def __init__(self, prompt_len: int = 0, *, text: bool = False, prediction: Sequence[int] | None = None) -> None:
        """`text`: whether tokens are looked up in the text.

        `prediction`: token ids that the whole output may have, behind a prompt of `prompt_len` tokens; None: there is
        no prediction.
        """
        self._sources: dict[DraftSource, _Source] = {}
        if prediction is not None:
            self._sources[DraftSource.PREDICTION] = PredictedOutput(prediction, prompt_len)
        if text:
            self._sources[DraftSource.LOOKUP] = NgramIndex()

    def __bool__(self) -> bool:
        return bool(self._sources)

    def follow(self, text: Sequence[int]) -> None:
        """Take in the tokens of `text`, prompt included, that are new to each place."""
        for source in self._sources.values():
            source.extend(text[len(source) :])

    def found(self, node: TreeNode, tail: Sequence[int]) -> list[TreeNode]:
        """The tokens that are found behind `node`, whose path from the text is `tail`: at most one for each place."""
        guesses = ((source, place.predict(tail)) for source, place in self._sources.items())
        return [
            TreeNode(guess[0], guess[1], ref(node), source=source) for source, guess in guesses if guess is not None
        ]
