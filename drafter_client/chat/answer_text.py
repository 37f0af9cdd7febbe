"""Divides an answer, as it comes, into the thoughts that it may begin with and what is said."""

from collections.abc import Sequence
from typing import NamedTuple

from drafter_client.generation.generation import Token
from gateway.openai_api.answers.answer import Markers, ThoughtReader
from gateway.openai_api.detokenizer import Detokenizer
from specpair.engines.vocabulary import Vocabulary
from specpair.speculation.acceptance.token_source import TokenSource

_TAIL = 16  # tokens of a prompt, which hold a marker that it ends with


class Part(NamedTuple):
    """A part of an answer. `thought`: whether it is one. `source`: that of its token; None: it is the text's end."""

    text: str
    thought: bool
    source: TokenSource | None


class AnswerText:
    """Takes the tokens of one answer. `thoughts` and `said` are what it has so far, without markers."""

    def __init__(self, markers: Markers, *, begun: bool) -> None:
        """`begun`: whether the prompt has begun the thoughts."""
        self._reader = ThoughtReader(markers, begun=begun)
        self._read = 0  # characters
        self.thoughts = self.said = ""

    def take(self, tokens: Sequence[Token]) -> list[Part]:
        """The parts that these tokens bring. Some characters are held back until it is known what they are."""
        self._read += sum(len(token.text) for token in tokens)
        return [part for token in tokens for part in self._parts(*self._reader.feed(token.text), token.source)]

    def finish(self, text: str) -> list[Part]:
        """The parts that were held back. `text`: the whole answer, which may end with characters of no token so far."""
        rest = self._reader.feed(text[self._read :])
        return [*self._parts(*rest, None), *self._parts(*self._reader.finish(), None)]

    def _parts(self, thoughts: str, said: str, source: TokenSource | None) -> list[Part]:
        self.thoughts, self.said = self.thoughts + thoughts, self.said + said
        return [Part(text, thought, source) for text, thought in ((thoughts, True), (said, False)) if text]


def begins_thoughts(prompt_ids: Sequence[int], vocabulary: Vocabulary, markers: Markers) -> bool:
    """Whether a prompt ends with the beginning of thoughts."""
    shown = Detokenizer(vocabulary, shown=markers.texts)
    return "".join(map(shown.feed, prompt_ids[-_TAIL:])).rstrip().endswith(markers.begin)
