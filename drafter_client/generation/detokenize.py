"""Incremental detokenization: a character that is split over several tokens appears once, with the last of them."""

import codecs

from backends.vocabulary import Vocabulary


class TextStream:
    """Incremental decoder over one vocabulary. Invalid UTF-8 and unknown token ids become U+FFFD."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pieces: list[str] = []

    def feed(self, token: int) -> str:
        """Return the text that `token` completes; it may be empty."""
        known = token < self._vocabulary.size  # the target's vocabulary may be larger
        self._pieces.append(self._decoder.decode(self._vocabulary.decode([token]) if known else b"\xff"))
        return self._pieces[-1]

    def __str__(self) -> str:
        """The whole text; an unfinished character at its end is U+FFFD."""
        return "".join(self._pieces) + self._decoder.getstate()[0].decode(errors="replace")
