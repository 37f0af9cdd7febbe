"""Where committed tokens came from, as far as the drafter can tell.

A token may be told of by the event stream, by the answer to the guess that brought it, or by that to a later guess
which it made out of date, in any order. So what is said at once is not the last word: that has the guess's own answer.
"""

from collections.abc import Iterator
from enum import Enum

from speculation.forecast import Flight


class Origin(Enum):
    """Every token of a text has one of these, so that they add up to it."""

    ACCEPTED = "accepted"  # drafted here, and the target agreed
    CORRECTION = "correction"  # the target's own, in place of a draft that fell
    FREE = "free"  # the target's own, where no draft was in the way
    OWN = "own"  # the verifier's, which went on by itself before a guess came


class Origins:
    """The guesses of one text, and the origins that were told of its tokens. Positions count the prompt's, too."""

    def __init__(self, accepts: bool = True) -> None:
        """`accepts`: whether drafts can stand at all."""
        self._accepts = accepts
        self._guesses: list[Flight] = []  # in order, those that nothing has contradicted and that reach beyond the text
        self._told: dict[int, Origin] = {}

    def sent(self, guess: Flight) -> None:
        """A guess is under way."""
        self._guesses.append(guess)

    def tell(self, position: int, token: int, own: bool, answered: Flight | None, late: bool) -> Origin:
        """Of the next token of the text. `own`: the verifier says that no guess brought it. `answered`: the guess whose
        answer told of it; `late`: after it had been committed without that."""
        self._guesses = [guess for guess in self._guesses if position <= guess.end]
        begun = [guess for guess in self._guesses if guess.position <= position and guess is not answered]
        self._guesses = [guess for guess in self._guesses if not _contradicts(position, token, guess)]
        brought = answered if not late else None
        brought = brought or next(iter(begun), None)
        unasked = own or (brought is None and answered is not None)
        origin = self._told[position] = Origin.OWN if unasked else self._of(position, token, brought)
        return origin

    def settle(self, guess: Flight, first: int, tokens: list[int]) -> Iterator[tuple[Origin, Origin]]:
        """Of the `tokens` that a round told of, those from position `first` on came with its guess: for each what was
        told of it, and what it is."""
        for position, token in enumerate(tokens, guess.position):
            if position >= first and position in self._told:
                yield self._told.pop(position), self._of(position, token, guess)

    def _of(self, position: int, token: int, guess: Flight | None) -> Origin:
        """What a token is that came with `guess`."""
        if guess is None or not guess.position <= position < guess.end:
            return Origin.FREE
        stood = self._accepts and not _contradicts(position, token, guess)
        return Origin.ACCEPTED if stood else Origin.CORRECTION


def _contradicts(position: int, token: int, guess: Flight) -> bool:
    """Whether the guess has another token there."""
    return guess.position <= position < guess.end and guess.drafts[position - guess.position] != token
