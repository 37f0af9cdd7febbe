"""Tokens to text as they come: a character split over tokens appears once, with its last token."""

import codecs

from backends.vocabulary import Vocabulary


class TextStream:
    """Incremental decoder over one vocabulary. Bytes that are no valid UTF-8 become U+FFFD, as do unknown ids."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token: int) -> str:
        """The text that `token` completes; may be empty."""
        known = token < self._vocabulary.size  # the target may have more ids
        return self._decoder.decode(self._vocabulary.decode([token]) if known else b"\xff")

    def rest(self) -> str:
        """What would be left of an unfinished character if nothing more came."""
        return self._decoder.getstate()[0].decode(errors="replace")
