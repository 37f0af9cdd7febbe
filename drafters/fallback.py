"""A draft model whose engine may fail: the text goes on by the target alone, and what happened is kept."""

from collections.abc import Callable, Sequence

from backends.base import first_line
from drafters.base import Drafter, Expansion
from drafters.errors import DrafterError
from speculation.drafts.tree import Prediction
from speculation.errors import SpecPairError


class FallbackDrafter:
    """A drafter for one text. Once its engine has failed, for whatever reason, it is sure of nothing.

    So drafts are no longer worth sending. Were some sent all the same, the target would reject them.
    """

    def __init__(self, make: Callable[[], Drafter]) -> None:
        """`make`: the drafter; it may fail, too."""
        self.failure: str | None = None  # what the engine said
        self.width = 1
        self._drafter: Drafter | None = None
        try:
            self._drafter = make()
            self.width = self._drafter.width
        except Exception as error:
            self._fail(error)

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: bool) -> Expansion:
        """As the drafter does it. Raises SpecPairError and DrafterError: then it is not the engine that failed."""
        if self._drafter is not None:
            try:
                return self._drafter.expand(text, tails, runners_up)
            except Exception as error:
                self._fail(error)
        unknown = [Prediction(0, 0.0, 1 if runners_up else None) for _ in tails]
        return Expansion(unknown, len(tails) + 1)  # more than a step reads: no time of a step is learnt from it

    def _fail(self, error: Exception) -> None:
        if isinstance(error, SpecPairError | DrafterError):
            raise error
        self.failure, self._drafter = first_line(error), None
