"""Where committed tokens came from, as far as the drafter can tell.

A token may be told of by the event stream, by the answer to the guess that brought it, or by that to another guess,
in any order. So what is said at once is not the last word: that has the answer to the guess whose pass it came of, of
which there is one for each pass, or the stream, which knows the verifier's own steps.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from speculation.acceptance.strategies import common_prefix
from speculation.policy.verifier_timeline import InFlightDraft


class TokenSource(Enum):
    """Every token of a text has one of these, so that they add up to it."""

    ACCEPTED = "accepted"  # drafted here, and the target agreed
    RECOVERED = "recovered"  # the target's own, in place of a draft that fell
    BONUS = "bonus"  # the target's own, where no draft was in the way
    TARGET_DECODED = "target_decoded"  # the verifier's, which went on by itself before a guess came


class SourceChange(NamedTuple):
    """What a token turned out to be, where that is not what was thought."""

    position: int
    thought: TokenSource
    source: TokenSource


def first_sources(count: int) -> list[TokenSource]:
    """Of the tokens that came with the prompt: one, and what the verifier added before the request was repeated."""
    return [TokenSource.BONUS] + [TokenSource.TARGET_DECODED] * (count - 1)


class TokenSources:
    """The guesses under way for one text, and what is said of its tokens. Positions count the prompt's, too."""

    def __init__(self, text: Sequence[int], accepts: bool = True) -> None:
        """`text`: what is known of it, prompt included; it grows. `accepts`: whether drafts can stand at all."""
        self._text, self._accepts = text, accepts
        self._under_way: list[InFlightDraft] = []
        self._thought: dict[int, TokenSource] = {}  # of tokens told of, until it is settled
        self._settled: dict[int, TokenSource] = {}  # of tokens not told of yet

    def sent(self, guess: InFlightDraft) -> None:
        """A guess is under way."""
        self._under_way.append(guess)

    def answered(
        self, guess: InFlightDraft, recorded: int, stood: int, end: int, unjudged: int = 0
    ) -> list[SourceChange]:
        """Its answer came. Its pass brought the tokens from `recorded` up to `end` (none: they are equal), of which the
        first `stood` are drafts. `unjudged`: drafts at its end that the pass left out."""
        self._under_way.remove(guess)
        fell = TokenSource.RECOVERED if recorded + stood < guess.end - unjudged else TokenSource.BONUS
        sources = {at: TokenSource.ACCEPTED if at < recorded + stood else fell for at in range(recorded, end)}
        return self._settle(sources)

    def went_on(self, position: int, count: int) -> list[SourceChange]:
        """The verifier says that it came to `count` tokens from `position` on by itself."""
        return self._settle(dict.fromkeys(range(position, position + count), TokenSource.TARGET_DECODED))

    def tell(self, position: int, count: int) -> list[TokenSource]:
        """Of the last `count` tokens of the text, from `position` on: as well as can be told by now."""
        reaches = [(guess, self._reach(guess)) for guess in self._under_way]
        return [self._tell(at, reaches) for at in range(position, position + count)]

    @property
    def waits(self) -> bool:
        """Whether an answer under way will settle what is not yet."""
        reaches = [(guess.position, self._reach(guess)) for guess in self._under_way]
        return any(first <= at <= last for at in self._thought for first, last in reaches)

    def close(self) -> list[SourceChange]:
        """No more answers are waited for: what none accounts for, no guess has brought."""
        return self._settle(dict.fromkeys(self._thought, TokenSource.TARGET_DECODED))

    def _settle(self, sources: dict[int, TokenSource]) -> list[SourceChange]:
        known = len(self._text)
        self._settled |= {at: source for at, source in sources.items() if at >= known}
        changes = [
            SourceChange(at, self._thought.pop(at), source) for at, source in sources.items() if at in self._thought
        ]
        return [change for change in changes if change.thought is not change.source]

    def _tell(self, at: int, reaches: list[tuple[InFlightDraft, int]]) -> TokenSource:
        if at in self._settled:
            return self._settled.pop(at)
        source = next(
            (self._of(at, *each) for each in reaches if each[0].position <= at <= each[1]), TokenSource.TARGET_DECODED
        )
        self._thought[at] = source
        return source

    def _of(self, at: int, guess: InFlightDraft, reach: int) -> TokenSource:
        """What a token is if it came of this guess."""
        if at < reach and self._accepts:
            return TokenSource.ACCEPTED
        return TokenSource.RECOVERED if at < guess.end else TokenSource.BONUS

    def _reach(self, guess: InFlightDraft) -> int:
        """The last place that the guess can have brought a token for."""
        return guess.position + common_prefix(self._text[guess.position : guess.end], guess.drafts)
