"""BytePairs encodes texts as their tokenizer would, from the bytes of its tokens alone."""

from hypothesis import given
from hypothesis import strategies as st

from backends.llama_cpp.model import read_gguf_vocabulary
from models import DEFAULT_TARGET
from specpair.drafters.byte_pairs import BytePairs
from specpair.engines.vocabulary import Kind
from tests.end_to_end.prompts import PROMPTS

BYTES = {byte: bytes([byte]) for byte in range(256)}
WORDS = BytePairs(BYTES | dict(enumerate([b"ab", b"abc", b"bc", b" a", b" ab", b"12", b"123", b"  ", b"", b"ab"], 300)))


@given(st.text())
def test_encoding_keeps_all_bytes(text: str) -> None:
    ids = WORDS.encode(text)
    assert "".join(WORDS.split(text)) == text
    pieces = BYTES | dict(enumerate([b"ab", b"abc", b"bc", b" a", b" ab", b"12", b"123", b"  "], 300))
    assert b"".join(pieces[token] for token in ids) == text.encode(errors="replace")


def test_lowest_id_is_merged_first_and_wins_among_equals() -> None:
    assert WORDS.encode("abc") == [301]
    assert WORDS.encode("abcc") == [301, 99], "ab is merged before bc, and then with the c"
    assert WORDS.encode("zbcab") == [122, 302, 300]


def test_words_are_split_with_the_space_before_them() -> None:
    assert WORDS.encode("ab ab") == [300, 304]
    assert WORDS.encode("   ab") == [307, 304]
    assert WORDS.split("x = foo_bar(12345)\n\n  y") == ["x", " =", " foo", "_bar", "(", "123", "45", ")\n\n", " ", " y"]
    assert BytePairs(BYTES).split("123") == ["1", "2", "3"], "cut to the length of the longest number token"


def test_bytes_without_a_token_are_left_out() -> None:
    assert BytePairs({7: b"a"}).encode("abä") == [7]


def test_long_word_is_cut() -> None:
    assert len(BytePairs(BYTES).encode("a" * 100_000)) == 100_000


def test_default_pair_is_encoded_as_by_its_tokenizer() -> None:
    vocabulary, _ = read_gguf_vocabulary(DEFAULT_TARGET)
    ordinary = {at: piece for at, piece in enumerate(vocabulary.pieces) if vocabulary.kinds[at] == Kind.ORDINARY}
    pairs = BytePairs(ordinary)
    same = sum(pairs.encode(text) == vocabulary.encode(text, add_begin=False) for text in PROMPTS)
    assert same >= len(PROMPTS) - 1
