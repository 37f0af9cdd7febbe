"""The contract of a drafter: to predict the next token behind each of several continuations of the text.

Its errors, and the drafter that looks up n-grams, are here, too.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from specpair.speculation.drafting.text_lookup import TextLookup
from specpair.speculation.drafting.tree import Proposal


class Expansion(NamedTuple):
    """The result of a draft step: a proposal for each tail, in their order.

    `read`: how many tokens the model read for them. Step times are learnt only where that is at most one a tail.
    """

    proposals: list[Proposal]
    read: int


READ_CHUNK = 128  # tokens of a prompt that are read before it is checked whether they are still wanted


class Drafter(Protocol):
    """Predicts tokens, for example by a model or a table. One thread at a time may use it."""

    width: int  # the most tails that one call of `expand` can handle

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Expansion:
        """Predict the next token behind `text` + tail for each of `tails`, in one draft step.

        `text`: the committed tokens, prompt included; from call to call it only grows.
        `tails`: 1 to `width` continuations of the text, likeliest first.
        `runners_up`: how many choices after the first are wanted; fewer do.
        """


def read_prompt(
    drafter: Drafter, text: Sequence[int], held: int, stopped: Callable[[], bool], answered: Callable[[], bool]
) -> int:
    """Have a drafter read a text while the target reads it. Returns how many tokens it has read.

    `held`: how many of the text's first tokens it has read.
    `stopped`: whether to read no further.
    `answered`: whether the answer has begun. A drafter that needs only parts then reads what the first draft needs.
    """
    reads = getattr(drafter, "read_prompt", None)
    if reads is not None:
        return int(reads(text, held, stopped, answered))
    return read_in_chunks(drafter, text, held, stopped)


def read_in_chunks(drafter: Drafter, text: Sequence[int], held: int, stopped: Callable[[], bool]) -> int:
    """As `read_prompt`, all of the text."""
    read = 0
    for end in (*range(held + READ_CHUNK, len(text), READ_CHUNK), len(text)):
        if not stopped():
            read += drafter.expand(text[:end], [[]], 0).read
    return read


def read_between_steps(drafter: Drafter, stopped: Callable[[], bool]) -> int:
    """Have a drafter read what it lacks of the text, while it has nothing to predict.

    `stopped`: whether to read no further, since it has.

    Returns how many tokens it was reading when that came, for which the next draft step had to wait.
    """
    reads = getattr(drafter, "read_between_steps", None)
    return 0 if reads is None else int(reads(stopped))


class DrafterError(Exception):
    """Base of all errors on the drafter's side. The message is one plain sentence that says what to do."""


class BadDrafter(DrafterError):
    """A custom drafter returned something that breaks the drafter contract."""


class StrategyRefused(DrafterError):
    """The strategy is not possible with this drafter or these options."""


NGRAM_LOOKUP = "n-gram lookup"


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
