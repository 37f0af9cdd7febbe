"""Styles: which one a chat template shows, and that what a style writes is read as it was meant."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.openai_api.tools.json_text import json_of, types_of
from gateway.openai_api.tools.reader import BareKeys, Keywords, Parameters, Writing
from gateway.openai_api.tools.styles import NOTATIONS, Style, style_of
from tests.gateway.openai_api.tools.support import read, tool

NAMES = ["look", "look_up", "get-weather", "a.b"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["</parameter>", "\n", "</tool_call>", '"}', "[ARGS]{", "<|tool_call>", "true", "1", "\\u12"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
KEYS = st.text("abc_1", min_size=1, max_size=4)
VALUES = st.recursive(SCALARS, lambda each: st.lists(each, max_size=3) | st.dictionaries(KEYS, each, max_size=3))
CALLS = st.lists(st.tuples(st.sampled_from(NAMES), st.dictionaries(KEYS, VALUES, max_size=4)), min_size=1, max_size=3)


def kind(value: Any) -> str:
    """JSON Schema's name of a value's type."""
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def bare(value: Any, quote: str) -> str:
    """A value with bare keys, and with `quote` around strings."""
    match value:
        case str():
            return quote + value + quote
        case list():
            return f"[{','.join(bare(each, quote) for each in value)}]"
        case dict():
            return "{" + ",".join(f"{key}:{bare(each, quote)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def python(value: Any) -> str:
    """A value as a literal of Python, with the escapes that JSON has, too."""
    match value:
        case str():
            text = json.dumps(value, ensure_ascii=False)
            return text if '"' in value else "'" + text[1:-1].replace("'", "\\'") + "'"
        case list():
            return f"[{', '.join(map(python, value))}]"
        case dict():
            return "{" + ", ".join(f"{python(key)}: {python(each)}" for key, each in value.items()) + "}"
    return repr(value)


def written(writing: Writing, calls: list[tuple[str, dict[str, Any]]]) -> str:
    """Calls as a style writes them."""
    texts = []
    for at, (name, arguments) in enumerate(calls):
        match writing.arguments:
            case None:
                text = json.dumps(arguments)
            case BareKeys(quote):
                text = bare(arguments, quote)
            case Keywords(middle, between):
                text = between.join(f"{key}{middle}{python(value)}" for key, value in arguments.items())
            case Parameters(begin, middle, end, other):
                values = {
                    key: f"{middle}{each}" if isinstance(each, str) else f"{other or middle}{json.dumps(each)}"
                    for key, each in arguments.items()
                }
                text = "".join(f"{begin}{key}{value}{end}" for key, value in values.items())
        number = f":{at}" if writing.number else ""
        texts.append(writing.begin + name + number + writing.middle + text + writing.end)
    return writing.before + writing.between.join(texts) + writing.after


@given(st.sampled_from(list(Style)), CALLS, st.booleans())
def test_what_a_style_writes_is_read(style: Style, calls: list[tuple[str, dict[str, Any]]], whole: bool) -> None:
    tools = {name: tool() for name in NAMES}
    for at, (_, arguments) in enumerate(calls):  # each call is of a tool whose schema its arguments have
        tools[f"{at}"] = tool(**{key: {"type": kind(value)} for key, value in arguments.items()})
    named = [(f"{at}", arguments) for at, (_, arguments) in enumerate(calls)]
    named = named if NOTATIONS[style].writing().several else named[:1]
    text = written(NOTATIONS[style].writing(), named)
    said = read(style, tools, text, whole=whole)
    assert said.content == "" and all(call.whole for call in said.calls)
    assert [(call.name, json.loads(call.arguments)) for call in said.calls] == named


@pytest.mark.parametrize("style", Style)
def test_a_trigger_and_tokens_stand_in_what_a_style_writes_or_reads(style: Style) -> None:
    notation = NOTATIONS[style]
    writing = notation.writing()
    assert writing.trigger is None or (writing.before + writing.begin).startswith(writing.trigger)
    assert writing.trigger is None or writing.trigger in notation.anywhere
    spelled = {each for each in notation.anywhere if "|" in each or "[" in each}
    assert all(any(token in each for token in writing.tokens) for each in spelled)


@pytest.mark.parametrize(
    ("template", "style"),
    [
        (None, Style.JSON),
        ("{{ messages[0].content }}", Style.JSON),
        ('{{- \'<tool_call>\\n{"name": "\' + tool_call.name }}', Style.HERMES),
        ('{{- "<tool_call>\\n{\\"name\\": <function-name>" }}', Style.HERMES),
        ("{{- '<tool_call>\\n' }}{{- '{\"name\": <function-name>' }}", Style.HERMES),
        ("'<tool_call>\\n<function=' + name + '>\\n' '<parameter=' + key", Style.QWEN_XML),
        ("'<function=' + name + '>' + arguments | tojson + '</function>'", Style.JSON),
        ('Respond in the format {"name": function name, "parameters": dictionary}', Style.LLAMA),
        ("'[TOOL_CALLS]' + name + '[ARGS]' + arguments", Style.MISTRAL),
        ('"<|tool_call_start|>[" + (tool_calls | join(", ")) + "]<|tool_call_end|>"', Style.PYTHONIC),
        ("'[TOOL_CALLS][' for tool_call in message.tool_calls", Style.MISTRAL_LIST),
        ("'<|tool_call>call:' + function['name'] + '{'", Style.GEMMA),
        ("{{ '<|start|>assistant to=functions.' + name + '<|channel|>commentary json<|message|>' }}", Style.HARMONY),
        ("<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>", Style.GLM),
        ("'<tool_call>' + tc.name '<arg_key>' + k + '</arg_key>'", Style.GLM),
        ("<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>", Style.GLM_COMPACT),
        ("'<｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + name + '\\n' + '```json'", Style.DEEPSEEK_V3),
        ("'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>' + arguments", Style.DEEPSEEK_V31),
        ("{% set dsml = '｜DSML｜' %}<{{ dsml }}function_calls>\n<{{ dsml }}invoke", Style.DEEPSEEK_V32),
        ("{% set dsml = '｜DSML｜' %}<{{ dsml }}tool_calls>\n<{{ dsml }}invoke", Style.DEEPSEEK_V4),
        ("{% set dsml = '｜DSML｜' %}<{{ dsml }} calls>\n<{{ dsml }} invoke", Style.DEEPSEEK_V41),
        ("<|tool_calls_section_begin|>{% for c in calls %}<|tool_call_begin|>{{ c.id }}", Style.KIMI),
        ("{% set begin = '<minimax:tool_call>' %}<invoke name=\"tool-1\">", Style.MINIMAX),
        ("{% set begin = '<seed:tool_call>' %}\\n<function=example>\\n<parameter=one>", Style.SEED),
        ("'<function_calls>\\n' {{ call.name + '(' }}", Style.OLMO),
    ],
)
def test_the_style_that_a_template_shows(template: str | None, style: Style) -> None:
    assert style_of(template) is style


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
