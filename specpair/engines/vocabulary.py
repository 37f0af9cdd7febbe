"""A model's vocabulary, and fingerprints that show whether verifier and drafter mean the same by each token id."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, NamedTuple

from specpair.engines import probe_texts
from specpair.protocol.fingerprint import Fingerprint

_LINE_BREAK = "\n"  # is a token of its own wherever a space is put before texts


class Kind(IntEnum):
    """The class of a token id."""

    ORDINARY = 0  # text
    CONTROL = 1  # begin, end, roles: has a meaning but no text
    UNUSED = 2  # padding of the embedding table; families pad differently


class PromptSpan(NamedTuple):
    """A part of a prompt. `control`: whether control tokens that it spells out are meant."""

    text: str
    control: bool


class Vocabulary(ABC):
    """The bytes and class of each id, and the encoding of text. The network carries ids only, so both ends need it."""

    encodes_here = True  # whether a text is encoded on this machine, in microseconds

    def __init__(
        self,
        pieces: list[bytes],
        kinds: list[Kind],
        begin: int | None,
        ends: frozenset[int],
        end: int | None = None,
    ) -> None:
        """`pieces[id]` and `kinds[id]`: bytes and class of a token.
        `begin`, `ends`: ids of the begin and end tokens.
        `end`: the one of `ends` that the model's files name, which chat templates write; the only one if there is one.
        `begin` and `end` are ignored unless they are control tokens: llama.cpp reports a default id where a file names
        none.
        """
        self.pieces, self.kinds, self.ends = pieces, kinds, ends
        self.begin = if_control(begin, kinds)
        self.end = if_control(min(ends) if end is None and len(ends) == 1 else end, kinds)

    @property
    def size(self) -> int:
        """How many token ids there are."""
        return len(self.pieces)

    @cached_property
    def longest(self) -> int:
        """The number of bytes in the longest token, at least 1."""
        return max(map(len, self.pieces), default=1) or 1

    @cached_property
    def derived(self) -> dict[str, Any]:
        """A cache, by name, of objects derived from the vocabulary; it lives as long as the vocabulary."""
        return {}

    @abstractmethod
    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        """The ids of `text`, after the begin token if `add_begin` is true and the model starts its texts with one.

        An end token is never added, also where the model's files ask for one: a prompt goes on.
        With `parse_control`, control tokens spelled out in the text (chat templates) become their ids.
        """

    def encode_parts(self, parts: Sequence[PromptSpan]) -> list[int]:
        """The ids of a prompt in parts. The begin token comes once, whether or not the first part spells it out."""
        begin = self.spelled(self.begin)
        ids: list[int] = []
        for at, part in enumerate(parts):
            if part.control or at == 0:
                begins = at == 0 and not (begin and part.control and part.text.startswith(begin))
                ids += self.encode(part.text, add_begin=begins, parse_control=part.control)
            else:
                ids += self.encode_after_token(part.text)
        return ids

    def encode_after_token(self, text: str) -> list[int]:
        """The ids of plain text that stands after a control token, without the space that some put before a text."""
        if not self._spaces_only_first:
            return self.encode(text, add_begin=False)
        start = self.encode(_LINE_BREAK, add_begin=False)
        return self.encode(_LINE_BREAK + text, add_begin=False)[len(start) :]

    @cached_property
    def _spaces_only_first(self) -> bool:
        """Whether a space is put before a text, but not after a control token, as some SentencePiece tokenizers do."""
        token = self.begin if self.end is None else self.end
        if token is None:
            return False
        after = self.encode(self.spelled(token) + "a", add_begin=False, parse_control=True)
        return after != [token, *self.encode("a", add_begin=False)]

    def spelled(self, token: int | None) -> str:
        """The text that spells out the token; empty without a token."""
        return "" if token is None else self.pieces[token].decode(errors="replace")

    def token_of(self, spelled: str) -> int | None:
        """The first token with this spelling; None: no token in use. It takes microseconds after the first time."""
        token = self._tokens.get(spelled.encode(errors="surrogatepass"))
        return None if token is None or self.kinds[token] == Kind.UNUSED else token

    @cached_property
    def _tokens(self) -> dict[bytes, int]:
        """The first token with these bytes."""
        return dict(zip(reversed(self.pieces), range(self.size - 1, -1, -1), strict=True))

    def decode(self, ids: list[int]) -> bytes:
        """The bytes of the ordinary tokens in `ids`; other ids have no text. A character can span several ids."""
        return b"".join(self.pieces[i] for i in ids if self.kinds[i] == Kind.ORDINARY)

    @cached_property
    def fingerprint(self) -> Fingerprint:
        return self.fingerprint_below(self.size)

    @lru_cache(maxsize=32)  # noqa: B019 - a vocabulary lives as long as its process
    def fingerprint_below(self, below: int) -> Fingerprint:
        """The fingerprint of the first `below` ids, to compare with a smaller vocabulary of the same family."""
        below = max(0, min(below, self.size))
        ordinary, control = hashes(self.pieces, self.kinds, below)
        return Fingerprint(
            size=self.size,
            below=below,
            begin=self.begin,
            ends=tuple(sorted(self.ends)),
            ordinary=ordinary,
            control=control,
            text=self.text_digest,
        )

    @cached_property
    def text_digest(self) -> str:
        """A hash over all that defines texts: the tokens, the begin and end ids, and the ids of `probe_texts`.

        Vocabularies with equal ones read and write texts alike, as far as so many texts can tell. Unused ids do not
        count. It takes a tenth of a second or two, once.
        """
        known = [token for token, kind in enumerate(self.kinds) if kind != Kind.UNUSED]
        pieces, kinds = [self.pieces[token] for token in known], [self.kinds[token] for token in known]
        digest = hashlib.sha256(repr((self.begin, self.end, sorted(self.ends), known, [*map(len, pieces)])).encode())
        digest.update(bytes(kinds) + b"".join(pieces))
        names = [
            piece
            for piece, kind in zip(pieces, kinds, strict=True)
            if kind == Kind.CONTROL or probe_texts.may_be_found_whole(piece)
        ]
        for text in chain(probe_texts.FIXED, probe_texts.around(names)):
            for add_begin in (True, False):
                ids = self.encode(text, add_begin=add_begin, parse_control=not add_begin)
                digest.update(repr(ids).encode())
        for at in range(0, len(probe_texts.FIXED), 3):
            parts = [PromptSpan(text, bool(number % 2)) for number, text in enumerate(probe_texts.FIXED[at : at + 3])]
            digest.update(repr(self.encode_parts(parts)).encode())
        for text in probe_texts.generated(pieces):
            digest.update(repr(self.encode(text, add_begin=False)).encode())
        return digest.hexdigest()


def hashes(pieces: Sequence[bytes], kinds: Sequence[Kind], below: int) -> tuple[str, str]:
    """The hashes over id and bytes of the first `below` tokens: of those of text, and of the control tokens."""
    digests = {Kind.ORDINARY: hashlib.sha256(), Kind.CONTROL: hashlib.sha256()}
    for token in range(below):
        digest = digests.get(kinds[token])
        if digest is not None:
            piece = pieces[token]
            digest.update(b"%d:%d:" % (token, len(piece)))
            digest.update(piece)
    return digests[Kind.ORDINARY].hexdigest(), digests[Kind.CONTROL].hexdigest()


def if_control(token: int | None, kinds: Sequence[Kind]) -> int | None:
    """The id `token`, if it is one of a control token."""
    return token if token is not None and [*kinds[token : token + 1]] == [Kind.CONTROL] else None


class PaddedVocabulary(Vocabulary):
    """Another vocabulary with `size` ids: unused ids are added or dropped at its end, as in models of a family."""

    def __init__(self, vocabulary: Vocabulary, size: int) -> None:
        added = max(0, size - vocabulary.size)
        pieces = [*vocabulary.pieces[:size], *[b""] * added]
        kinds = [*vocabulary.kinds[:size], *[Kind.UNUSED] * added]
        super().__init__(pieces, kinds, vocabulary.begin, vocabulary.ends, vocabulary.end)
        self._vocabulary = vocabulary

    @property
    def text_digest(self) -> str:
        return self._vocabulary.text_digest

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        return self._vocabulary.encode(text, add_begin=add_begin, parse_control=parse_control)

    def encode_parts(self, parts: Sequence[PromptSpan]) -> list[int]:
        return self._vocabulary.encode_parts(parts)


def cannot_draft(draft_name: str, draft: Vocabulary, target_name: str, target: Vocabulary) -> str | None:
    """Why a model with vocabulary `draft` cannot draft for one with vocabulary `target`; None if it can.

    It can if every id that both use for text stands for the same bytes, and begin and end ids are equal. Other control
    tokens may differ, and one vocabulary may use ids that the other one lacks or leaves unused: the verifier rejects
    drafts of such ids, and nothing else happens.
    """
    below = min(draft.size, target.size)
    ours, theirs = draft.fingerprint_below(below), target.fingerprint_below(below)
    differs = difference(ours, theirs)
    if ours.ordinary != theirs.ordinary:
        token = first_conflict(draft, target)
        if token is None:
            differs = difference(ours, replace(theirs, ordinary=ours.ordinary))
        else:
            differs = f"{differs}: the first is id {token}, {draft.pieces[token]!r} in the draft model"
    return None if differs is None else refusal(draft_name, target_name, differs)


def first_conflict(draft: Vocabulary, target: Vocabulary) -> int | None:
    """The first id that one vocabulary uses for text and the other for something else; None if there is none."""
    for token in range(min(draft.size, target.size)):
        kinds = {draft.kinds[token], target.kinds[token]}
        if Kind.UNUSED in kinds or Kind.ORDINARY not in kinds:
            continue
        if len(kinds) == 2 or draft.pieces[token] != target.pieces[token]:
            return token
    return None


def refusal(draft_name: str, target_name: str, differs: str) -> str:
    """The message with which drafter and verifier refuse a draft model; `differs` is the reason."""
    return f"{draft_name} cannot draft for {target_name}: choose a draft model of the target's own family. ({differs})"


def difference(ours: Fingerprint, theirs: Fingerprint) -> str | None:
    """Say in which way two fingerprints over the same ids differ; None if they show that one model can draft for the
    other (see `cannot_draft`). Raises ValueError for different numbers of ids.

    If only the ids that one of them leaves unused differ, the fingerprints do not show that.
    """
    if ours.below != theirs.below:
        raise ValueError(f"fingerprints over {ours.below} and {theirs.below} ids cannot be compared")
    if ours.ordinary != theirs.ordinary:
        return f"token ids below {ours.below} stand for different bytes (sizes {ours.size} and {theirs.size})"
    if ours.begin != theirs.begin:
        return f"the begin-of-text id is {ours.begin} here and {theirs.begin} there"
    if ours.ends != theirs.ends:
        return f"the end-of-text ids are {list(ours.ends)} here and {list(theirs.ends)} there"
    return None
