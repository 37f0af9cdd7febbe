"""The characters of a text as its tokens come, up to the first stop string.

A control token has no characters, unless it is shown. One that a stop string names ends the text all the same.
"""

import codecs
from collections.abc import Sequence

from gateway.openai_api.stop_strings import Fed, StopStrings
from specpair.engines.vocabulary import Kind, Vocabulary


class Detokenizer:
    """Decodes one text. A character that is split over several tokens comes with the last of them; invalid UTF-8
    becomes U+FFFD.

    `stopped` says whether a stop string has ended the text, `stop_string` which one, `decoded` how many characters the
    tokens have, those of the stop string included.
    """

    def __init__(self, vocabulary: Vocabulary, stops: Sequence[str] = (), shown: Sequence[str] = ()) -> None:
        """`stops`: strings of at least one character.

        `shown`: a control token whose name is in one of these texts has its name as its characters.
        """
        self.stopped, self.decoded = False, 0
        self.stop_string: str | None = None
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stops = StopStrings(stops)
        self._names = frozenset(stop.encode() for stop in stops)
        self._shown = [text.encode() for text in shown]
        self._pieces: list[str] = []  # of the text, as `feed` returned them

    def feed(self, token: int) -> str:
        """The characters that are the text's for certain with this token. Not to be called after the text was
        stopped."""
        part = self._decoder.decode(self._bytes(token))
        self.decoded += len(part)
        if self._is_named(token):
            self.stopped, self.stop_string = True, self._vocabulary.pieces[token].decode()
            self._pieces.append(self._stops.end())
        else:
            self._pieces.append(self._feed(part).text)
        return self._pieces[-1]

    def end(self) -> str:
        """The characters that were held back, at the end of the text: an unfinished one becomes U+FFFD."""
        if self.stopped:
            return ""
        rest = self._decoder.decode(b"", final=True)
        self.decoded += len(rest)
        fed = self._feed(rest)
        self._pieces.append(fed.text if self.stopped else fed.text + self._stops.end())
        return self._pieces[-1]

    def _feed(self, part: str) -> Fed:
        fed = self._stops.feed(part)
        self.stopped, self.stop_string = fed.stopped, self._stops.found
        return fed

    @property
    def text(self) -> str:
        """The whole text so far; an unfinished character at its end is U+FFFD."""
        return "".join(self._pieces) + self.held

    @property
    def held(self) -> str:
        """The characters that are held back now, as `end` would return them unless they complete a stop string."""
        return "" if self.stopped else self._stops.held + self._decoder.getstate()[0].decode(errors="replace")

    def _bytes(self, token: int) -> bytes:
        vocabulary = self._vocabulary
        if vocabulary.kinds[token] == Kind.CONTROL and token not in vocabulary.ends:
            name = vocabulary.pieces[token]
            return name if any(name in text for text in self._shown) else b""
        return vocabulary.decode([token])

    def _is_named(self, token: int) -> bool:
        """Whether it is a control token whose name is a stop string."""
        vocabulary = self._vocabulary
        return vocabulary.kinds[token] == Kind.CONTROL and vocabulary.pieces[token] in self._names
