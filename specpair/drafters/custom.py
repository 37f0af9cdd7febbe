"""Checks the results of a user's own drafter, so that an error names that drafter and not the code that uses it."""

from collections.abc import Sequence
from typing import Any

from specpair.drafters.base import Drafter, Expansion
from specpair.drafters.errors import BadDrafter
from specpair.speculation.drafts.tree import Proposal


class CheckedDrafter:
    """Passes on the results of `drafter`. Raises BadDrafter, which names it and says what is wrong, for bad results."""

    def __init__(self, drafter: Drafter, name: str, ids: int) -> None:
        """`ids`: the size of the target's vocabulary. Raises BadDrafter if `drafter` lacks a part of the contract."""
        self._drafter, self._name, self._ids = drafter, name, ids
        width = getattr(drafter, "width", None)
        if type(width) is not int or width < 1 or not callable(getattr(drafter, "expand", None)):
            raise self._wrong(f"is no drafter: it needs a method expand, and a width of at least 1, not {width!r}")
        self.width = width

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        """The drafter's own expansion. Raises BadDrafter if it breaks the contract (`base`)."""
        result: Any = self._drafter.expand(text, tails, runners_up)
        proposals, read = result if isinstance(result, tuple) and len(result) == 2 else (None, None)
        if not isinstance(proposals, Sequence) or len(proposals) != len(tails):
            raise self._wrong(
                f"must return an Expansion with a proposal for each of {len(tails)} tails, not {result!r}"
            )
        if type(read) is not int or read < 0:
            raise self._wrong(f"must say how many tokens it read, not {read!r}")
        return Expansion([self._checked(each) for each in proposals], read)

    def _checked(self, proposal: Any) -> Proposal:
        if not isinstance(proposal, Proposal):
            raise self._wrong(f"must predict with a Proposal, not {proposal!r}")
        for token in proposal.tokens:
            if type(token) is not int or not 0 <= token < self._ids:
                raise self._wrong(f"must name token ids from 0 to {self._ids - 1}, not {token!r}")
        if not isinstance(proposal.confidence, float | int) or not 0 <= proposal.confidence <= 1:
            raise self._wrong(f"must give a confidence from 0 to 1, not {proposal.confidence!r}")
        if proposal.probs is not None and proposal.token not in proposal.probs:
            raise self._wrong(f"draws {proposal.token} from {proposal.probs!r}, which does not contain it")
        return proposal

    def _wrong(self, what: str) -> BadDrafter:
        return BadDrafter(f"{self._name} {what[:300]}")
