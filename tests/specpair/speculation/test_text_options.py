"""The options of a text: what is wrong with one, what is told of tokens, and which grammar is asked for."""

from typing import Any

import pytest

from specpair.options.option import options_of
from specpair.protocol.messages import GenerateRequest
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.sampling.grammar import (
    LONGEST_SCHEMA,
    MOST_CHOICES,
    CheckedSchema,
    GrammarOptions,
    GrammarText,
    wrong_grammars,
)
from specpair.speculation.sampling.row_changes import LogitProcessor
from specpair.speculation.sampling.sampling import Logits, Sampling
from specpair.speculation.text_options import TextSpec


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, None),
        ({"strategy": Strategy.THRESHOLD, "threshold": 0.3}, None),
        ({"strategy": Strategy.THRESHOLD}, "the strategy threshold needs a threshold, from 0 to less than 1"),
        ({"threshold": 0.3}, "a threshold is not possible with the strategy coupled"),
        ({"max_tokens": 0}, "max_tokens must be None or at least 1, got 0"),
        ({"logprobs": 1000}, "logprobs must be in [0, 20], got 1000"),
        ({"logit_bias": [3]}, "logit_bias must map token ids to numbers, got [3]"),
        ({"logit_bias": {"3": 1.0}}, "logit_bias must map token ids to numbers, got '3': 1.0"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias names -1, which is no token id: ids are 0 or greater"),
        ({"logit_bias": {3: 101.0}}, "logit_bias of token 3 must be in [-100, 100], got 101.0"),
    ],
)
def test_what_is_wrong_with_options_is_said(options: dict[str, Any], words: str | None) -> None:
    assert TextSpec(**options).complaint() == words


def test_what_is_told_of_tokens_does_not_change_them() -> None:
    spec = TextSpec(seed=3, temperature=0.5, explain=True, logprobs=0, max_tokens=9)
    assert spec.details_asked == (True, 0)
    assert spec.without_details == TextSpec(seed=3, temperature=0.5) and spec.without_details.details_asked == (
        False,
        None,
    )


OPTIONS = options_of(GrammarOptions)


class Mask(LogitProcessor):
    def __init__(self, asked: GrammarText) -> None:
        self.asked = asked

    def process(self, row: Logits) -> None:
        """It masks nothing."""


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, None),
        ({"grammar_after": "</think>"}, None),
        ({"json_schema": True}, GrammarText("json_schema", "true")),
        ({"json_schema": {"b": 1, "a": 2}}, GrammarText("json_schema", '{"b": 1, "a": 2}')),
        ({"regex": "a+"}, GrammarText("regex", "a+")),
        ({"choice": ("b", "ä")}, GrammarText("choice", '["b", "\\u00e4"]')),
        ({"grammar": "start: /a/", "grammar_after": "x"}, GrammarText("grammar", "start: /a/", "x")),
    ],
)
def test_a_text_asks_for_at_most_one_grammar(given: dict[str, Any], text: GrammarText | None) -> None:
    sampling = Sampling(**given)
    assert sampling.grammar_text == text and wrong_grammars(sampling) is None
    made = sampling.processors(set(), grammars=Mask)
    assert [each.asked for each in made if isinstance(each, Mask)] == ([] if text is None else [text])
    if text is not None:
        with pytest.raises(ValueError, match=f"{text.kind}: there are no grammars here"):
            sampling.processors(set())


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("json_schema", None, None),
        ("json_schema", {"type": "null"}, None),
        ("json_schema", [1], "must be an object of JSON"),
        ("json_schema", {"a": {1}}, "is not JSON"),
        ("json_schema", {"a": float("inf")}, "is not JSON"),
        ("json_schema", {"enum": ["x" * LONGEST_SCHEMA]}, "characters as JSON"),
        ("choice", ["a"], None),
        ("choice", "ab", "must be texts"),
        ("choice", [1], "must be texts"),
        ("choice", [""], "holds an empty text"),
        ("choice", ["a"] * (MOST_CHOICES + 1), f"at most {MOST_CHOICES}"),
        ("choice", ["a" * LONGEST_SCHEMA, "b"], f"more than {LONGEST_SCHEMA}"),
    ],
    ids=lambda each: str(each)[:20],
)
def test_what_is_wrong_with_a_value(name: str, value: Any, complaint: str | None) -> None:
    said = OPTIONS[name].complaint(value)
    assert said is None if complaint is None else complaint in (said or "")


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    schema: Any = {}
    for _ in range(100_000):
        schema = {"items": schema}
    assert OPTIONS["json_schema"].complaint(schema) == "json_schema is nested too deeply"
    while schema:  # taken apart, as the interpreter's own way would recurse
        schema = schema.popitem()[1]


def test_a_schema_of_a_request_is_checked_once() -> None:
    """To write a large one as JSON takes milliseconds, in which no other thread runs."""
    spec = GenerateRequest.model_validate({"prompt": "a", "json_schema": {"type": "null"}}).spec
    assert isinstance(spec.json_schema, CheckedSchema)
    again = GenerateRequest.of(spec, prompt="b").spec
    assert again.grammar_text is not None and again.grammar_text.text is spec.json_schema.text
