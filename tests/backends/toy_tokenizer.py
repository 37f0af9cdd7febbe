"""A tokenizer whose every part can differ from another's, and the differences of one part that tests try."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from specpair.engines.vocabulary import Kind, Vocabulary

BEGIN, END, ROLE, WHOLE = 256, 257, 258, 259
_WORDS = (b"th", b"the", b" the", b" t", b"12", b"123", b"23", b"  ", b"    ", b"\n\n", b"'ll", b"\xc3\xa9", b"ab")
SPLITS = {
    "words": r" ?\w+|\s+|[^\w\s]+",
    "single digits": r"\d| ?[^\W\d]+|\s+|[^\w\s]+",
    "contractions": r"'(?:ll|s)| ?\w+|\s+|[^\w\s]+",
    "space before words": r"\s+(?!\S)|\s?\w+|\s+|[^\w\s]+",
}


@dataclass(frozen=True)
class Parts:
    """All that defines the tokenizer."""

    words: tuple[bytes, ...] = _WORDS
    role: str = "<|user|>"  # the name of a control token
    role_kind: Kind = Kind.CONTROL
    whole: str = "<think>"  # a token of text that is found whole
    is_whole: bool = True
    filler: bool = False  # whether the id of that token is left unused
    padding: int = 0
    begin: int | None = BEGIN
    ends: frozenset[int] = frozenset({END})
    adds_begin: bool = True
    space_before: bool = False
    composes: bool = False  # whether "e" and an acute accent become one character
    split: str = "words"
    longest_first: bool = True  # else a word is read by the shortest tokens of the vocabulary


class ToyTokenizer(Vocabulary):
    """Splits a text by a pattern, and reads each part by its longest tokens, or by bytes."""

    def __init__(self, parts: Parts = Parts()) -> None:
        self.parts = parts
        pieces = [*(bytes([each]) for each in range(256)), b"<begin>", b"<end>"]
        pieces += [parts.role.encode(), b"[PAD259]" if parts.filler else parts.whole.encode()]
        kinds = [Kind.ORDINARY] * 256 + [Kind.CONTROL] * 2
        kinds += [parts.role_kind, Kind.UNUSED if parts.filler else Kind.ORDINARY]
        pieces += [*parts.words, *(b"[PAD%d]" % each for each in range(parts.padding))]
        kinds += [Kind.ORDINARY] * len(parts.words) + [Kind.UNUSED] * parts.padding
        super().__init__(pieces, kinds, parts.begin, parts.ends)
        self._ids = {piece: token for token, piece in enumerate(pieces) if token < 256 or token > WHOLE}
        self._whole = {parts.whole: WHOLE} if parts.is_whole and not parts.filler else {}
        self._control = {pieces[token].decode(): token for token in (BEGIN, END, ROLE) if kinds[token] == Kind.CONTROL}

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        ids = [self.begin] if add_begin and self.parts.adds_begin and self.begin is not None else []
        names = self._whole | (self._control if parse_control else {})
        if self.parts.space_before and text:
            text = " " + text
        if self.parts.composes:
            text = text.replace("e\u0301", "\u00e9")
        for part in re.split("(" + "|".join(map(re.escape, names)) + ")", text) if names else [text]:
            if part in names:
                ids.append(names[part])
            else:
                for word in re.findall(SPLITS[self.parts.split], part):
                    ids += self._word(word.encode())
        return ids

    def _word(self, word: bytes) -> Iterator[int]:
        while word:
            sizes = range(min(len(word), 6), 0, -1) if self.parts.longest_first else (2, 1)
            size = next(each for each in sizes if word[:each] in self._ids)
            yield self._ids[word[:size]]
            word = word[size:]


# By what differs. Where a padding or nothing differs, the tokenizers are equal.
DIFFERENCES = {
    "name of a control token": replace(Parts(), role="<|usr|>"),
    "control token is text": replace(Parts(), role_kind=Kind.ORDINARY),
    "name of a whole token": replace(Parts(), whole="<thought>"),
    "token is not found whole": replace(Parts(), is_whole=False),
    "a filler for a whole token": replace(Parts(), filler=True),
    "a filler for a control token": replace(Parts(), role="[PAD258]", role_kind=Kind.UNUSED),
    "another word": replace(Parts(), words=(*_WORDS[:-1], b"ba")),
    "a word less": replace(Parts(), words=_WORDS[:-1]),
    "a word more": replace(Parts(), words=(*_WORDS, b"more")),
    "no begin": replace(Parts(), begin=None),
    "another begin": replace(Parts(), begin=ROLE),
    "another end": replace(Parts(), ends=frozenset({END, ROLE})),
    "begin is not added": replace(Parts(), adds_begin=False),
    "space before texts": replace(Parts(), space_before=True),
    "composed characters": replace(Parts(), composes=True),
    **{f"split: {name}": replace(Parts(), split=name) for name in SPLITS if name != "words"},
    "shortest first": replace(Parts(), longest_first=False),
}
EQUAL = {"nothing": Parts(), "padding": replace(Parts(), padding=5)}
