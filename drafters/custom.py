"""A program's own drafter, held to the contract: what it says wrong is said of it, not of whatever meets it next."""

from collections.abc import Sequence
from typing import Any

from drafters.base import Drafter, Expansion
from drafters.errors import BadDrafter
from speculation.drafts.tree import Prediction


class CheckedDrafter:
    """Passes on what a drafter says, or raises BadDrafter that names it and what is wrong."""

    def __init__(self, drafter: Drafter, name: str, ids: int) -> None:
        """`ids`: how many token ids the target has."""
        self._drafter, self._name, self._ids = drafter, name, ids
        width = getattr(drafter, "width", None)
        if type(width) is not int or width < 1 or not callable(getattr(drafter, "expand", None)):
            raise self._wrong(f"is no drafter: it needs a method expand, and a width of at least 1, not {width!r}")
        self.width = width

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: bool) -> Expansion:
        """As the drafter has it."""
        said: Any = self._drafter.expand(text, tails, runners_up)
        predictions, read = said if isinstance(said, tuple) and len(said) == 2 else (None, None)
        if not isinstance(predictions, Sequence) or len(predictions) != len(tails):
            raise self._wrong(
                f"must return an Expansion with a prediction for each of {len(tails)} tails, not {said!r}"
            )
        if type(read) is not int or read < 0:
            raise self._wrong(f"must say how many tokens it read, not {read!r}")
        return Expansion([self._checked(each) for each in predictions], read)

    def _checked(self, said: Any) -> Prediction:
        if not isinstance(said, Prediction):
            raise self._wrong(f"must predict with a Prediction, not {said!r}")
        for token in (said.token, *([] if said.runner_up is None else [said.runner_up])):
            if type(token) is not int or not 0 <= token < self._ids:
                raise self._wrong(f"must name token ids from 0 to {self._ids - 1}, not {token!r}")
        if not isinstance(said.confidence, float | int) or not 0 <= said.confidence <= 1:
            raise self._wrong(f"must be sure of a token from 0 to 1, not {said.confidence!r}")
        if said.probs is not None and said.token not in said.probs:
            raise self._wrong(f"draws {said.token} from {said.probs!r}, where it is not")
        return said

    def _wrong(self, what: str) -> BadDrafter:
        return BadDrafter(f"{self._name} {what[:300]}")
