"""What drafts: the one question that a draft model, a table or a test's junk can answer."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from speculation.drafts.tree import Prediction


class Expansion(NamedTuple):
    """What is expected behind each tail, and how many tokens the model read to know it."""

    predictions: list[Prediction]
    read: int


class Drafter(Protocol):
    """Whatever can guess: a model, a table, a test's junk. Used by one thread at a time."""

    width: int  # tails that it can look beyond at once

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: bool) -> Expansion:
        """The next token behind `text` and each of `tails` (1 to `width`, likeliest first), all in one step.

        From call to call `text` may only grow. `runners_up`: name second choices, too.
        """
