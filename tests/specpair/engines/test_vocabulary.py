"""Fingerprints are compatible exactly where token ids mean the same in two vocabularies."""

from collections.abc import Callable

import pytest

from backends.scripted import ByteVocabulary
from specpair.engines.vocabulary import Kind, PaddedVocabulary, Vocabulary, cannot_draft, difference
from tests.backends.toy_tokenizer import DIFFERENCES, EQUAL, ToyTokenizer


class Pieces(Vocabulary):
    """A vocabulary given by its pieces. No text has an id."""

    def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
        return []


WORDS = [b"<s>", b"</s>", b"a", b"b", b"ab", b"\xe6", b" the"]


def vocabulary(
    change: Callable[[list[bytes]], None] = lambda pieces: None,
    padding: int = 0,
    ends: set[int] | None = None,
    begin: int | None = 0,
) -> Pieces:
    pieces = list(WORDS)
    change(pieces)
    kinds = [Kind.CONTROL] * 2 + [Kind.ORDINARY] * (len(pieces) - 2) + [Kind.UNUSED] * padding
    pieces += [b"[PAD%d]" % number for number in range(padding)]
    return Pieces(pieces, kinds, begin, frozenset({1} if ends is None else ends))


def compare(ours: Vocabulary, theirs: Vocabulary) -> str | None:
    """Compare as the two ends do: over the ids that both have."""
    below = min(ours.size, theirs.size)
    return difference(ours.fingerprint_below(below), theirs.fingerprint_below(below))


@pytest.mark.parametrize("padding", [1, 128])
def test_families_that_pad_differently_are_compatible(padding: int) -> None:
    """Qwen2.5 has tables of 151,936 and of 152,064 ids for the same tokens."""
    small, large = vocabulary(padding=3), vocabulary(padding=3 + padding)
    assert small.fingerprint != large.fingerprint
    assert compare(small, large) is None
    assert compare(large, small) is None


def test_padding_against_an_ordinary_token_is_compatible() -> None:
    """Fingerprints cannot show it: the vocabularies do."""
    small, large = vocabulary(padding=1), vocabulary(lambda pieces: pieces.append(b"word"))
    for draft, target in ((small, large), (large, small)):
        assert "stand for different bytes" in (compare(draft, target) or "")
        assert cannot_draft("draft", draft, "target", target) is None
    other = cannot_draft("draft", small, "target", vocabulary(lambda pieces: pieces.append(b"word"), begin=None)) or ""
    assert "the begin-of-text id is 0 here and None there" in other


def test_text_against_a_control_token_is_incompatible() -> None:
    ours, theirs = vocabulary(padding=1), vocabulary(padding=1)
    theirs.kinds[3] = Kind.CONTROL
    for draft, target in ((ours, theirs), (theirs, ours)):
        assert "the first is id 3, b'b' in the draft model" in (cannot_draft("draft", draft, "target", target) or "")


@pytest.mark.parametrize(
    "change",
    [
        lambda pieces: pieces.__setitem__(3, b"B"),
        lambda pieces: pieces.__setitem__(slice(2, 4), [b"b", b"a"]),  # the same pieces under other ids
        lambda pieces: pieces.__setitem__(slice(3, 5), [b"ba", b"b"]),  # the same bytes in all, cut elsewhere
        lambda pieces: pieces.insert(2, b""),
    ],
    ids=["another word", "swapped ids", "shifted bytes", "one id more in front"],
)
def test_different_bytes_are_incompatible(change: Callable[[list[bytes]], None]) -> None:
    differs = compare(vocabulary(), vocabulary(change)) or ""
    assert differs.startswith("token ids below 7 stand for different bytes")


def test_different_end_ids_are_incompatible() -> None:
    assert compare(vocabulary(), vocabulary(ends={1, 2})) == "the end-of-text ids are [1] here and [1, 2] there"
    assert compare(vocabulary(), vocabulary(ends=set())) == "the end-of-text ids are [1] here and [] there"


@pytest.mark.parametrize("begin", [2, -1, 7])
def test_begin_id_must_be_a_control_token(begin: int) -> None:
    assert vocabulary(begin=begin).begin is None


@pytest.mark.parametrize("what", DIFFERENCES)
def test_any_difference_of_the_tokenizers_is_one_of_the_text_digests(what: str) -> None:
    assert ToyTokenizer(DIFFERENCES[what]).text_digest != ToyTokenizer().text_digest


@pytest.mark.parametrize("what", EQUAL)
def test_equal_tokenizers_have_equal_text_digests(what: str) -> None:
    assert ToyTokenizer(EQUAL[what]).fingerprint.text == ToyTokenizer().text_digest


@pytest.mark.parametrize("size", [262, 263, 300])
def test_padded_vocabulary_is_the_same_with_another_size(size: int) -> None:
    own = ByteVocabulary(263)
    padded = PaddedVocabulary(own, size)
    assert padded.fingerprint == ByteVocabulary(size).fingerprint
    assert padded.encode("a<end>", parse_control=True) == own.encode("a<end>", parse_control=True)
    assert padded.decode([*range(size)]) == bytes(range(256))
