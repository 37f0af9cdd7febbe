"""The vocabulary of every engine: encoding, decoding, control tokens and the fingerprint."""

import pytest

from specpair.engines.vocabulary import Kind, difference
from tests.conformance.backends import BATCH, CONTEXT, SLOTS
from tests.conformance.conftest import TEXT, Subject

TEXTS = [
    TEXT,
    "x",
    " ",
    "\n\t\r\n",
    "naïve café, “quotes”",
    "日本語のテキスト",
    "🙂👩‍👩‍👧‍👦 and a flag 🇨🇭",
    "zero \x00 byte",
    "e\u0301 is not é",
    "<|begin|> <begin> <s> </s> <end> <|end|>",
]


def test_engine_has_the_requested_sizes(subject: Subject) -> None:
    backend = subject.backend
    assert (backend.slots, backend.context_length, backend.max_batch_tokens) == (SLOTS, CONTEXT, BATCH)
    assert backend.name
    assert backend.model_name


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: ascii(text[:12]))
def test_text_survives_encoding_and_decoding(subject: Subject, text: str) -> None:
    vocabulary = subject.backend.vocabulary
    ids = vocabulary.encode(text)
    assert all(0 <= token < vocabulary.size for token in ids)
    assert vocabulary.decode(ids) == text.encode()
    assert b"".join(vocabulary.decode([token]) for token in ids) == text.encode(), "also when streamed id by id"


def test_begin_token_is_first_and_only_once(subject: Subject) -> None:
    vocabulary = subject.backend.vocabulary
    with_begin, without = vocabulary.encode("some text"), vocabulary.encode("some text", add_begin=False)
    assert with_begin == ([] if vocabulary.begin is None else [vocabulary.begin]) + without
    assert vocabulary.encode("", add_begin=False) == []


def test_control_tokens_spelled_in_text_stay_text(subject: Subject) -> None:
    vocabulary = subject.backend.vocabulary
    for token in range(vocabulary.size):
        if vocabulary.kinds[token] is not Kind.CONTROL:
            continue
        spelled = vocabulary.pieces[token].decode()
        ids = vocabulary.encode(f"a{spelled}b", add_begin=False)
        assert token not in ids, spelled
        assert vocabulary.decode(ids) == f"a{spelled}b".encode()


def test_parse_control_encodes_the_end_token(subject: Subject) -> None:
    vocabulary = subject.backend.vocabulary
    end = min(vocabulary.ends)
    spelled = vocabulary.pieces[end].decode()
    ids = vocabulary.encode(f"a{spelled}b", add_begin=False, parse_control=True)
    assert ids.count(end) == 1
    assert vocabulary.decode(ids) == b"ab", "control tokens have no text"


def test_begin_and_end_are_control_tokens(subject: Subject) -> None:
    vocabulary = subject.backend.vocabulary
    assert vocabulary.ends
    for token in {*vocabulary.ends, vocabulary.begin} - {None}:
        assert token is not None
        assert vocabulary.kinds[token] is Kind.CONTROL


def test_fingerprint_is_stable(subject: Subject) -> None:
    vocabulary = subject.backend.vocabulary
    first = vocabulary.fingerprint
    assert first == vocabulary.fingerprint_below(vocabulary.size)
    assert (first.size, first.below) == (vocabulary.size, vocabulary.size)
    assert difference(first, vocabulary.fingerprint_below(vocabulary.size + 10)) is None
    assert vocabulary.fingerprint_below(100).ordinary != first.ordinary
