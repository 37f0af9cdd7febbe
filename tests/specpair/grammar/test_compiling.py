"""Grammars are compiled once, and what is wrong with one is said with its place."""

import json
import re
from typing import Any

import numpy as np
import pytest
from llguidance import LLMatcher

from backends.scripted import BEGIN, ByteVocabulary
from specpair.engines.vocabulary import Vocabulary
from specpair.grammar import compiling
from specpair.grammar.compiling import Grammars, TooCostly, Trials, grammars_of
from specpair.grammar.of_text import prepare_grammars
from specpair.grammar.tokenizer import TokenTable
from specpair.protocol.errors import InvalidRequest
from specpair.speculation.sampling.grammar import GrammarText

GRAMMARS = Grammars(ByteVocabulary())
SETS = {"type": "array", "uniqueItems": True}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            {"properties": {"not": {}, "a/b": {"items": [{}, {"not": {"const": 1}}]}}},
            'json_schema#/properties/a~1b/items/1/not: "not" cannot be kept to',
        ),
        (
            {"$defs": {"a": SETS}, "anyOf": [{"type": "string", "uniqueItems": True}, SETS]},
            "json_schema#/anyOf/1/uniqueItems: ",
        ),
        (
            {"items": {"oneOf": [{"minimum": 1}, {}]}},
            "json_schema#/items/oneOf: oneOf: a value may fit two of its choices: give anyOf",
        ),
        ({"anyOf": [{"type": ["string"]}, {"type": ["town"]}]}, "json_schema#/anyOf/1/type: "),
        ({"items": {"maxProperties": 1, "properties": {"a": {}, "b": {}}}}, "json_schema#/items/maxProperties: "),
        ({"properties": {"a": {"required": []}, "b": {"required": 3}}}, "json_schema#/properties/b/required: "),
        ({"$ref": "#"}, "json_schema: a $ref refers to itself"),
        ({"items": {"$ref": "#/$defs/none"}}, "json_schema#/items/$ref: $ref #/$defs/none: there is nothing"),
        ({"$ref": "https://example.com/a.json"}, "json_schema#/$ref: $ref https://"),
        ({"items": {"$ref": "other.json#/a"}}, "json_schema#/items/$ref: $ref other.json: only"),
        ({"items": [{"pattern": "a"}, {"pattern": "(?=a)b"}]}, "json_schema#/items/1/pattern: "),
        ({"properties": {"a": {"pattern": "("}}}, "json_schema#/properties/a/pattern: unclosed group"),
        ({"patternProperties": {"(": {}}}, "json_schema#/patternProperties: "),
        (False, "json_schema: "),
        ({"anyOf": [{"properties": {f"p{number}": {} for number in range(1001)}}]}, "json_schema: an object has 1001"),
        ({"type": "integer", "multipleOf": 9999991}, "json_schema#/multipleOf: multipleOf comes to 9999991, at most"),
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
        ("grammar", 'start: %json {"not": {"const": 1}}'),
        ("grammar", 'start: "a" %json {"items": {"multipleOf": 9999991}} %json {}'),
    ],
)
def test_a_text_that_is_no_grammar_is_refused(kind: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{kind}: .") as caught:
        GRAMMARS(GrammarText(kind, text))
    assert caught.value.details == {"param": kind}


def test_a_grammar_begins_behind_one_token_only() -> None:
    with pytest.raises(InvalidRequest, match="grammar_after: '</think>' is not one token"):
        GRAMMARS(GrammarText("regex", "a", after="</think>"))


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


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeTrials:
    """Grammars take too much if there is a `costly`, else the bytes in `memory`."""

    def __init__(self, *_: object) -> None:
        self.asked = list[str]()
        self.costly: TooCostly | None = None
        self.memory = 0

    def attempt(self, source: str, seconds: float) -> tuple[str, int]:
        self.asked.append(source)
        if self.costly is not None:
            raise self.costly
        return "", self.memory


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> FakeTrials:
    made = FakeTrials()
    monkeypatch.setattr(compiling, "Trials", lambda *_: made)
    return made


def _regex(text: str) -> GrammarText:
    return GrammarText("regex", text)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            TooCostly("it cannot be compiled: it takes longer than 10 s", late=True),
            "takes longer than 10 s: make it simpler",
        ),
        (TooCostly("it takes 99 MB"), "regex: it takes 99 MB: make it simpler, or its numbers smaller"),
        (None, "regex: unclosed group"),
    ],
)
def test_refusals_are_remembered_for_ten_minutes(trials: FakeTrials, error: TooCostly | None, message: str) -> None:
    clock, asked = Clock(), _regex("a" if error else "(")
    grammars = Grammars(ByteVocabulary(), clock=clock)
    trials.costly = error
    for tried, clock.now in ((1, 0.0), (1, 599.0), (2, 601.0)):
        with pytest.raises(InvalidRequest, match=re.escape(message)) as caught:
            grammars(asked)
        assert caught.value.details == {"param": "regex"}
        assert len(trials.asked) == tried


def test_a_grammar_without_an_answer_in_less_than_all_its_time_is_not_refused(trials: FakeTrials) -> None:
    grammars, asked = Grammars(ByteVocabulary()), _regex("a")
    trials.costly = TooCostly("late", late=True)
    assert not grammars.compile(asked, 1.0)
    trials.costly = None
    assert grammars.compile(asked) and grammars.is_compiled(asked)
    assert grammars.compile(asked, 1.0) and len(trials.asked) == 2


def test_grammars_are_kept_by_the_memory_that_they_take(trials: FakeTrials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "KEPT_MEMORY", 100)
    grammars = Grammars(ByteVocabulary())
    for text, trials.memory in (("a", 50), ("b", 50), ("a", 0), ("c", 50), ("d", 1000)):
        grammars(_regex(text))
        assert grammars.is_compiled(_regex(text))
        if text == "c":
            assert grammars.is_compiled(_regex("a")) and not grammars.is_compiled(_regex("b"))
    assert not grammars.is_compiled(_regex("c"))


def test_a_grammar_that_a_text_could_not_follow_is_compiled_anew(trials: FakeTrials) -> None:
    """All texts of a compiled grammar share its fault."""
    grammars, asked = Grammars(ByteVocabulary()), _regex("[ab]{3}(c{1000}){1000}")
    state = grammars(asked)
    for token in b"aba":
        state.push(token)
        state.process(np.zeros(258, np.float32))
    state.push(ord("c"))  # which would be allowed, but to take it in takes too much
    with pytest.raises(InvalidRequest, match="regex: it cannot be followed any further: lexer error"):
        state.process(np.zeros(258, np.float32))
    assert not grammars.is_compiled(asked)
    assert grammars(asked).allows(ord("a"))


HOSTILE = 'start: %json {"type": "integer", "multipleOf": 9999991}'
PRODUCT: list[Any] = [{"anyOf": [{"properties": {f"{name}{at}": {}}} for name in "ab"]} for at in range(20)]
TRIALS = Trials(lambda: TokenTable.of(ByteVocabulary()), compiling.LIMITS)


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        (LLMatcher.grammar_from_regex("[ab]{2,9}"), ""),
        (LLMatcher.grammar_from_regex("(a"), "unclosed group"),
        (LLMatcher.grammar_from_json_schema({"items": {"not": {}}}), "Unimplemented keys"),
        (LLMatcher.grammar_from_json_schema({"allOf": PRODUCT}), "schema too large"),
    ],
)
def test_a_usual_grammar_is_told_of(source: str, wrong: str) -> None:
    found, memory = TRIALS.attempt(source, 30)
    assert wrong in found and bool(wrong) == bool(found)
    assert memory < 4 * 2**20


@pytest.mark.parametrize(
    ("source", "seconds", "reason", "late"),
    [
        (LLMatcher.grammar_from_lark(HOSTILE), 0.5, "it cannot be compiled: it takes longer than 0.5 s", True),
        (
            LLMatcher.grammar_from_regex("(a{1000}){1000}"),
            60,
            r"\d\d+ MB of memory, at most 48 MB|mask of a token",
            False,
        ),
    ],
)
def test_a_grammar_that_takes_too_much_is_refused_and_the_next_one_is_not(
    source: str, seconds: float, reason: str, late: bool
) -> None:
    with pytest.raises(TooCostly, match=reason) as caught:
        TRIALS.attempt(source, seconds)
    assert caught.value.late == late
    assert TRIALS.attempt(LLMatcher.grammar_from_regex("[xy]{2}"), 30)[0] == ""
