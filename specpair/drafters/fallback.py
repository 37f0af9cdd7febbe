"""Handles the failure of a draft model's engine: the target continues the text alone, and the failure is recorded."""

from collections.abc import Callable, Sequence

from specpair.drafters.base import Drafter, Expansion
from specpair.drafters.errors import DrafterError
from specpair.engines.errors import first_line
from specpair.protocol.errors import SpecPairError
from specpair.speculation.drafts.tree import Proposal


class FallbackDrafter:
    """A drafter for one text. Once its engine has failed, for any reason, all its proposals have confidence 0.

    Such drafts are not worth sending. If one were sent all the same, the target would reject it.
    """

    def __init__(self, make: Callable[[], Drafter]) -> None:
        """`make` creates the drafter, which may fail, too. Raises SpecPairError and DrafterError of `make`."""
        self.failure: str | None = None  # the engine's error, in one line
        self.width = 1
        self._drafter: Drafter | None = None
        try:
            self._drafter = make()
            self.width = self._drafter.width
        except Exception as error:
            self._fail(error)

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        """The drafter's own expansion. Its SpecPairError and DrafterError are raised: they are no engine failures."""
        if self._drafter is not None:
            try:
                return self._drafter.expand(text, tails, runners_up)
            except Exception as error:
                self._fail(error)
        unknown = [Proposal(0, 0.0, 1 if runners_up else None) for _ in tails]
        return Expansion(unknown, len(tails) + 1)  # `read` is above one a tail: no step time is learnt

    def _fail(self, error: Exception) -> None:
        if isinstance(error, SpecPairError | DrafterError):
            raise error
        self.failure, self._drafter = first_line(error), None
