"""The text of one choice as it grows: characters of the tokens, cut at a stop string, with log probabilities."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from specpair.engines.vocabulary import Vocabulary
from specpair.openai_api.detokenizer import Detokenizer
from specpair.openai_api.texts import Piece
from specpair.speculation.sampling.logprobs import TokenLogprobs


class TokenPart(NamedTuple):
    """A token of the text that is sent. `logprob`: None if none was requested."""

    id: int
    begin: int  # characters of the text before it
    end: int  # characters of the text with it
    logprob: TokenLogprobs | None


@dataclass(frozen=True, slots=True)
class Delta:
    """What the text has grown by. `tokens`: those whose characters are complete with it."""

    text: str = ""
    tokens: list[TokenPart] = field(default_factory=list)


def joined(deltas: Sequence[Delta]) -> Delta:
    """All of them, one after the other."""
    return Delta("".join(each.text for each in deltas), [token for each in deltas for token in each.tokens])


class Output:
    """The text of one choice.

    `stopped` says whether a stop string has ended it, `count` how many tokens it has, the one that completed a stop
    string and an end token included.
    """

    def __init__(self, vocabulary: Vocabulary, stops: Sequence[str]) -> None:
        self.count = 0
        self._ends = vocabulary.ends
        self._text = Detokenizer(vocabulary, stops)
        self._sent = 0  # characters
        self._waiting: deque[TokenPart] = deque()  # tokens with characters that were not sent yet

    @property
    def stopped(self) -> bool:
        return self._text.stopped

    def take(self, piece: Piece) -> Delta:
        """Take in new tokens; those after a stop string are dropped."""
        text = ""
        logprobs: Sequence[TokenLogprobs | None] = piece.logprobs or [None] * len(piece.tokens)
        for token, logprob in zip(piece.tokens, logprobs, strict=True):
            text += self._add(token, logprob)
            if self.stopped:
                break
        return self._delta(text)

    def end(self) -> Delta:
        """Take in the end of the text. An unfinished character becomes U+FFFD."""
        return Delta() if self.stopped else self._delta(self._text.end())

    def _add(self, token: int, logprob: TokenLogprobs | None) -> str:
        """Take in one token; returns the characters that can be sent now."""
        self.count += 1
        begin = self._text.decoded
        text = self._text.feed(token)
        if token not in self._ends:
            self._waiting.append(TokenPart(token, begin, self._text.decoded, logprob))
        return text

    def _delta(self, text: str) -> Delta:
        self._sent += len(text)
        tokens = []
        while self._waiting and (
            self._waiting[0].begin < self._sent if self.stopped else self._waiting[0].end <= self._sent
        ):
            tokens.append(self._waiting.popleft())
        return Delta(text, tokens)
