"""The characters of a text as its tokens come, up to the first stop string.

A control token has no characters, unless it is shown. One that a stop string names ends the text all the same.
"""

import codecs
from collections.abc import Sequence

from specpair.engines.vocabulary import Kind, Vocabulary


class StopStrings:
    """Takes a text in parts and gives it back up to the first stop string.

    Characters that may be the beginning of a stop string are held back until the next part shows whether they are. The
    result does not depend on how the text is divided: the stop string that is complete first ends the text, and of
    several that are complete with the same character, the one that began first.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops`: strings of at least one character; none: the text passes as it is."""
        self._stops = tuple(stops)
        self.held = ""  # characters that may be the beginning of a stop string
        self.found: str | None = None  # the stop string that has ended the text

    def feed(self, text: str) -> str:
        """Take the next part of the text; return what can be sent now. Not to be called after `found` is set."""
        if not self._stops:
            return text
        seen = self.held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := seen.find(stop)) >= 0]
        if found:
            _, at, self.found = min(found)
            self.held = ""
            return seen[:at]
        keep = beginning(seen, self._stops)
        self.held = seen[len(seen) - keep :]
        return seen[: len(seen) - keep]

    def end(self) -> str:
        """The characters that were held back, at the end of the text."""
        held, self.held = self.held, ""
        return held


def beginning(text: str, strings: Sequence[str]) -> int:
    """The number of last characters of a text that may begin one of these strings."""
    most = min(max(map(len, strings), default=1) - 1, len(text))
    sizes = (size for size in range(most, 0, -1) if any(each.startswith(text[-size:]) for each in strings))
    return next(sizes, 0)


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
        """The characters that are certain with this token. Not to be called after the text was stopped."""
        vocabulary, name = self._vocabulary, self._vocabulary.pieces[token]
        control = vocabulary.kinds[token] == Kind.CONTROL
        if not control or token in vocabulary.ends:
            data = vocabulary.decode([token])
        else:
            data = name if any(name in text for text in self._shown) else b""
        part = self._decoder.decode(data)
        self.decoded += len(part)
        if control and name in self._names:
            self.stopped, self.stop_string = True, name.decode()
            self._pieces.append(self._stops.end())
        else:
            self._pieces.append(self._feed(part))
        return self._pieces[-1]

    def end(self) -> str:
        """The characters that were held back, at the end of the text: an unfinished one becomes U+FFFD."""
        if self.stopped:
            return ""
        rest = self._decoder.decode(b"", final=True)
        self.decoded += len(rest)
        fed = self._feed(rest)
        self._pieces.append(fed if self.stopped else fed + self._stops.end())
        return self._pieces[-1]

    def _feed(self, part: str) -> str:
        fed = self._stops.feed(part)
        self.stopped, self.stop_string = self._stops.found is not None, self._stops.found
        return fed

    @property
    def text(self) -> str:
        """The whole text so far; an unfinished character at its end is U+FFFD."""
        return "".join(self._pieces) + self.held

    @property
    def held(self) -> str:
        """The characters that are held back now, as `end` would return them unless they complete a stop string."""
        return "" if self.stopped else self._stops.held + self._decoder.getstate()[0].decode(errors="replace")
