"""The options of a grammar: what a text asks for, what is wrong with a value, and what makes its processor."""

from typing import Any

import pytest

from specpair.options.option import options_of
from specpair.protocol.messages import GenerateRequest
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
