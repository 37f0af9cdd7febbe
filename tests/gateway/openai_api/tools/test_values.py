"""Values that are written as text: what the tool's schema makes of them."""

import json
from typing import Any

import pytest

from gateway.openai_api.tools.json_text import json_of, types_of


def made(text: str, schema: Any, **others: Any) -> Any:
    """The value of a parameter with this schema. `others`: of the schema of all parameters."""
    return json.loads(json_of(text, types_of({"properties": {"x": schema}, **others}, "x")))


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("1", {"type": "string"}, "1"),
        ("1", {"type": "integer"}, 1),
        (" 1 ", {"type": "number"}, 1),
        ("1.5", {"type": "integer"}, 1.5),
        ("1e20", {"type": "number"}, 1e20),
        ("one", {"type": "integer"}, "one"),
        ("True", {"type": "boolean"}, True),
        ("false", {"type": "boolean"}, False),
        ("1", {"type": "boolean"}, "1"),
        ("None", {"type": ["string", "null"]}, None),
        ("none", {"type": ["string", "null"]}, "none"),
        ("null", {"type": "string", "nullable": True}, None),
        ('{"a": [1]}', {"type": "object"}, {"a": [1]}),
        ('{"a": "1\n2"}', {"type": "object"}, {"a": "1\n2"}),
        ("{'a': 1}", {"type": "object"}, "{'a': 1}"),
        ("[1]", {"anyOf": [{"type": "array"}, {"type": "null"}]}, [1]),
        ("some text", {"anyOf": [{"type": "array"}, {"type": "string"}]}, "some text"),
        ("5", {"oneOf": [{"type": "string"}, {"type": "integer"}]}, 5),
        ("5", {"enum": ["5", "6"]}, "5"),
        ("5", {"enum": [5, 6]}, 5),
        ("5", {"const": "5"}, "5"),
        ("5", {}, 5),
        ('"5"', {}, '"5"'),
        ('"5"', {"type": ["string", "null"]}, '"5"'),
        ("[1e999, NaN]", {}, "[1e999, NaN]"),
        ('["\\ud800"]', {"type": "array"}, ["\ufffd"]),
        ("05", {}, "05"),
        ("True", {}, "True"),
        ("5", None, 5),
        ("5", {"type": 7}, 5),
        ('{"a": 1}', {"$ref": "#/$defs/y~1z"}, '{"a": 1}'),
        ("7", {"allOf": [{"$ref": "#/$defs/y~1z"}]}, "7"),
        ("7", {"$ref": "#/$defs/loop"}, 7),
        ("7", {"$ref": "https://example.org/s"}, 7),
    ],
)
def test_the_types_of_a_schema_decide(text: str, schema: Any, value: Any) -> None:
    found = made(text, schema, **{"$defs": {"y/z": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}}})
    assert (found, type(found)) == (value, type(value))


def test_schemas_that_refer_to_themselves_take_no_time() -> None:
    schema = {"anyOf": [{"$ref": "#/properties/x"}] * 100}
    assert types_of({"properties": {"x": schema}}, "x") == frozenset()


def test_parameters_that_the_schema_does_not_name() -> None:
    assert types_of({}, "x") == types_of({"properties": []}, "x") == frozenset()
    assert types_of({"additionalProperties": {"type": "string"}}, "x") == {"string"}
    assert types_of({"additionalProperties": False}, "x") == frozenset()
