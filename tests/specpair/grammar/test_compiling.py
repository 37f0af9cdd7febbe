"""Grammars are compiled once, and what is wrong with one is said with its place."""

import gc
import json
from weakref import ref

import pytest
from llguidance import LLTokenizer

from backends.scripted import BEGIN, ByteVocabulary
from specpair.engines.vocabulary import Vocabulary
from specpair.grammar import compiling
from specpair.grammar.compiling import Grammars, grammars_of
from specpair.grammar.of_text import prepare_grammars
from specpair.grammar.tokenizer import tokenizer_of as made
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.sampling.grammar import GrammarText

GRAMMARS = Grammars(ByteVocabulary())


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"properties": {"a": {"items": [{}, {"not": {}}]}}}, "json_schema.properties.a.items.1.not: "),
        ({"type": "array", "uniqueItems": True}, "json_schema.uniqueItems: "),
        ({"anyOf": [{"type": "string", "format": "date"}, {"format": "tel"}]}, "json_schema.anyOf.1.format: "),
        ({"$ref": "#"}, "json_schema: a $ref refers to itself"),
        ({"$ref": "#/$defs/none"}, "json_schema: "),
        ({"$ref": "https://example.com/a.json"}, "json_schema: "),
        ({"type": "string", "pattern": "(?=a)b"}, "json_schema: "),
        (False, "json_schema: "),
        ({"anyOf": [{"properties": {f"p{number}": {} for number in range(1001)}}]}, "json_schema: an object has 1001"),
    ],
)
def test_a_schema_that_cannot_be_kept_to_is_refused_with_the_place(schema: object, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        GRAMMARS(GrammarText("json_schema", json.dumps(schema)))
    assert caught.value.message.startswith(message)
    assert len(caught.value.message) < 400 and "\n" not in caught.value.message
    assert caught.value.details == {"param": "json_schema"}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("regex", "(a"),
        ("regex", "a(?!b)"),
        ("grammar", "start: nothing"),
        ("grammar", 'root ::= "a" b'),
        ("grammar", ""),
        ("grammar", 'start: %json {"not": {}}'),
    ],
)
def test_a_text_that_is_no_grammar_is_refused(kind: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{kind}: .") as caught:
        GRAMMARS(GrammarText(kind, text))
    assert caught.value.details == {"param": kind}


def test_a_grammar_begins_behind_one_token_only() -> None:
    with pytest.raises(InvalidRequest, match="grammar_after: '</think>' is not one token"):
        GRAMMARS(GrammarText("regex", "a", after="</think>"))


def test_a_state_is_new_each_time() -> None:
    asked = GrammarText("choice", '["ab", "ac"]')
    first, second = GRAMMARS(asked), GRAMMARS(asked)
    first.push(ord("a"))
    assert first.only() is None and second.only() == ord("a")


def test_grammars_live_as_long_as_the_vocabulary_with_which_they_encode() -> None:
    vocabulary = ByteVocabulary()
    assert grammars_of(vocabulary) is grammars_of(vocabulary)
    assert grammars_of(vocabulary) is not grammars_of(ByteVocabulary())
    gone = ref(grammars_of(vocabulary))
    del vocabulary
    gc.collect()
    assert gone() is None


def test_a_model_without_an_end_token_writes_no_grammar() -> None:
    class Endless(Vocabulary):
        def __init__(self) -> None:
            given = ByteVocabulary()
            super().__init__(given.pieces, given.kinds, BEGIN, frozenset())

        def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
            return list(text.encode())

    endless = Endless()
    prepare_grammars(endless)
    with pytest.raises(InvalidRequest, match="no end token"):
        grammars_of(endless)(GrammarText("regex", "a"))


def test_a_vocabulary_is_read_once_and_beforehand_if_wished(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary, read = ByteVocabulary(), list[Vocabulary]()

    def tokenizer_of(each: Vocabulary) -> LLTokenizer:
        read.append(each)
        return made(each)

    monkeypatch.setattr(compiling, "tokenizer_of", tokenizer_of)
    prepare_grammars(vocabulary)
    assert read == [vocabulary]
    prepare_grammars(vocabulary)
    grammars_of(vocabulary)(GrammarText("regex", "a"))
    assert read == [vocabulary]


def test_where_texts_are_encoded_elsewhere_only_the_bytes_count() -> None:
    """To ask for the tokens of each forced text would take a round trip."""

    class Remote(ByteVocabulary):
        encodes_here = False

        def encode(self, text: str, *, add_begin: bool = True, parse_control: bool = False) -> list[int]:
            raise AssertionError("asked")

    made = Grammars(Remote())(GrammarText("regex", "abc"))
    assert made.only() is None and made.allows(ord("a")) and not made.allows(ord("b"))
    for token in b"abc":
        made.push(token)
    assert made.only() == 257
