"""The contract of a drafter: to predict the next token behind continuations of the text."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from speculation.drafts.tree import Prediction


class Expansion(NamedTuple):
    """The prediction for each tail, and how many tokens the model read for them."""

    predictions: list[Prediction]
    read: int


class Drafter(Protocol):
    """Predicts tokens, for example by a model or a table. One thread at a time may use it."""

    width: int  # tails that one `expand` can handle

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: bool) -> Expansion:
        """Predict the next token behind `text` + tail for each of `tails`, in one step.

        `text`: the committed tokens; from call to call it may only grow. `tails`: 1 to `width` continuations of the
        text, likeliest first. `runners_up`: predict second choices, too.
        """
