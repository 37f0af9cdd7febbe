"""Grammars are tried in a child process, which bounds what they take."""

from typing import Any

import pytest
from llguidance import LLMatcher

from backends.scripted import ByteVocabulary
from specpair.grammar import compiling
from specpair.grammar.compiling import TooCostly, Trials
from specpair.grammar.tokenizer import TokenTable

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
