"""Calls in texts as they grow: what is told, when, and what becomes of what is no call."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.openai_api.tools.reader import ArgumentsGrew, CallBegan, CallEnded, CallReader, Content
from gateway.openai_api.tools.styles import NOTATIONS, Style
from tests.gateway.openai_api.tools.support import Call, Said, read, tool

TOOLS = {"look": tool(a={"type": "integer"}, b={"type": "string"}), "look_up": {}, "f": {}}
# Pieces of which texts are made that are calls, nearly calls, or none.
PIECES = [
    *{each for notation in NOTATIONS.values() for each in (*notation.anywhere, *notation.at_line)},
    *("look", "look_up", "f", "else", '"name"', '"arguments"', '"parameters"', ":", ",", ";", "{", "}", "[", "]", '"'),
    *("</tool_call>", "</function>", "<parameter=a>", "<parameter=b>", "</parameter>", "[ARGS]", "[CALL_ID]", "call:"),
    *('<|"|>', "<tool_call|>", "\n", " ", "\\", "\\u", "d83d", "\\ude00", "1", "-0.5e3", "null", "true", "é", "text"),
    '{"name": "look", "arguments": {"a": 1}}',
    '{"name": "f", "parameters": {}}',
    '"arguments": "{\\"a\\": \\"\\\\n\\"}"',
    "<function=look>",
    "<function=look>\n<parameter=b>\nx\n</parameter>\n</function>",
    "call:f{a:1}",
    "[f(x='",
    "y=None, ",
    "')]",
    '{b:<|"|>x<|"|>}',
    "json\n",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)
CUTS = st.lists(st.integers(0, 200), max_size=12)
STYLES = st.sampled_from(list(Style))


@given(STYLES, TEXTS, CUTS, st.booleans())
@example(Style.HERMES, '<tool_call>{"arguments": {}, "name": "f"}</tool_call>', [1, 12, 30], False)
@example(Style.HERMES, '<tool_call>{"name": "f", "arguments":" {}}', [39], False)
def test_the_division_of_a_text_does_not_matter(style: Style, text: str, cuts: list[int], whole: bool) -> None:
    at_once = read(style, TOOLS, text, whole=whole)
    assert read(style, TOOLS, text, cuts, whole=whole) == at_once
    assert read(style, TOOLS, text, range(1, len(text)), whole=whole) == at_once


@given(STYLES, TEXTS)
def test_arguments_of_whole_calls_are_objects_and_calls_are_of_tools(style: Style, text: str) -> None:
    grown = read(style, TOOLS, text)
    assert all(call.name in TOOLS for call in grown.calls)
    assert all(isinstance(json.loads(call.arguments), dict) for call in grown.calls if call.whole)
    whole = read(style, TOOLS, text, whole=True)
    assert all(call.whole for call in whole.calls)
    if all(call.whole for call in grown.calls):
        assert grown == whole


@given(STYLES, TEXTS)
def test_without_tools_all_is_content(style: Style, text: str) -> None:
    said = read(style, {}, text)
    assert said.calls == []
    lost = text.removeprefix(said.content)
    assert text.startswith(said.content) and (not lost or lost.rstrip() in NOTATIONS[style].anywhere)


@given(STYLES, TEXTS, st.integers(0, 200))
def test_calls_of_a_text_that_is_cut_are_the_first_ones(style: Style, text: str, cut: int) -> None:
    whole, part = read(style, TOOLS, text, whole=True), read(style, TOOLS, text[:cut], whole=True)
    assert part.calls == whole.calls[: len(part.calls)]


CALL = '{"name": "look", "arguments": {"a": 1}}'
LOOK = Call("look", '{"a": 1}', whole=True)


@pytest.mark.parametrize(
    ("style", "text", "content", "calls"),
    [
        (Style.HERMES, f"One.\n\n<tool_call>\n{CALL}\n</tool_call>\n", "One.", [LOOK]),
        (Style.HERMES, f"One. <tool_call>{CALL}</tool_call>\nTwo.", "One. \nTwo.", [LOOK]),
        (Style.HERMES, f"<tool_call>{CALL}\n{CALL}</tool_call> ", "", [LOOK, LOOK]),
        (Style.HERMES, f"<tool_call>[{CALL}, {CALL}]</tool_call>", "", [LOOK, LOOK]),
        (Style.HERMES, f"<tool_call>{CALL}\n<tool_call>{CALL}</tool_ca", "", [LOOK, LOOK]),
        (Style.HERMES, f"<tool_call>{CALL[:-1]}</tool_call>", "", [LOOK]),
        (Style.HERMES, f"<tool_call><tool_call>{CALL}</tool_call>", "<tool_call>", [LOOK]),
        (Style.HERMES, '<tool_call>{"name": "f"}</tool_call>', "", [Call("f", "{}", whole=True)]),
        (Style.HERMES, '<tool_call>{"name": "f", "arguments": null}', "", [Call("f", "{}", whole=True)]),
        (Style.HERMES, '<tool_call>{"name": "f", "arguments": ""}', "", [Call("f", "{}", whole=True)]),
        (Style.HERMES, '<tool_call>{"arguments": {"a": 1}, "id": [1], "name": "look"}', "", [LOOK]),
        (Style.HERMES, '<tool_call>{"name": "look", "arguments": "{\\"a\\": 1} "}', "", [LOOK]),
        (Style.HERMES, '<tool_call>{"name": "l\\u006fok", "arguments": {"a": 1}}', "", [LOOK]),
        (Style.HERMES, f"<tool_call>\n{{{CALL}}}\n</tool_call>\n", "", [LOOK]),
        (Style.HERMES, f"<tool_call>{{{CALL}\n{{{CALL}}}</tool_call>", "", [LOOK, LOOK]),
        (Style.HERMES, f"{{{CALL}}}", "", [LOOK]),
        (Style.JSON, f"```json\n{{{CALL}}}\n```", "", [LOOK]),
        (Style.JSON, f"{{{CALL} So.", " So.", [LOOK]),
        (Style.JSON, "{{{" + CALL, "{{{" + CALL, []),
        (Style.LLAMA, f" {CALL}; {CALL}\n;\n{CALL}", "", [LOOK, LOOK, LOOK]),
        (Style.LLAMA, f"So:\n{CALL}\n\nThat is it.", "So:\n\nThat is it.", [LOOK]),
        (Style.LLAMA, f"So: {CALL}", f"So: {CALL}", []),
        (Style.LLAMA, f"So: <|python_tag|>{CALL}", "So: ", [LOOK]),
        (Style.LLAMA, '<|python_tag|>print("f")', '<|python_tag|>print("f")', []),
        (Style.LLAMA, f'{{"type": "function", {CALL[1:]}', "", [LOOK]),
        (Style.LLAMA, '{"name": "f"}', '{"name": "f"}', []),
        (Style.LLAMA, '{"name": "f", "a": 1} x', '{"name": "f", "a": 1} x', []),
        (Style.MISTRAL, '[TOOL_CALLS]look[ARGS]{"a": 1}[TOOL_CALLS]look{"a": 1}', "", [LOOK, LOOK]),
        (Style.MISTRAL, '[TOOL_CALLS] look [CALL_ID]a1[ARGS] {"a": 1} And', " And", [LOOK]),
        (Style.MISTRAL, f"[TOOL_CALLS] [{CALL},\n {CALL}]", "", [LOOK, LOOK]),
        (Style.MISTRAL, f"[TOOL_CALLS][{CALL}, 1]", ", 1]", [LOOK]),
        (Style.MISTRAL, "[TOOL_CALLS]lo[ARGS]{}", "[TOOL_CALLS]lo[ARGS]{}", []),
        (Style.MISTRAL, "[TOOL_CALLS]look[ARG]{}", "[TOOL_CALLS]look[ARG]{}", []),
        (Style.GEMMA, "<|tool_call>call:look{a:1}<tool_call|>x", "x", [Call("look", '{"a":1}', whole=True)]),
        (Style.GEMMA, "<|tool_call>call:f{b: so , c:[]}", "", [Call("f", '{"b":"so", "c":[]}', whole=True)]),
        (
            Style.GEMMA,
            '<|tool_call>call:f{<|"|>x y<|"|>:<|"|>"\n<|<|"|>,"z":"\\n"}',
            "",
            [Call("f", '{"x y":"\\"\\n<|","z":"\\n"}', whole=True)],
        ),
        (Style.PYTHONIC, "[look(a=1), look(a = 1 ,)]\nx", "\nx", [LOOK, LOOK]),
        (Style.PYTHONIC, "<|tool_call_start|>[f()]<|tool_call_end|>x", "x", [Call("f", "{}", whole=True)]),
        (
            Style.PYTHONIC,
            "[f(x='a\"\\'', y=[True, None])]",
            "",
            [Call("f", '{"x": "a\\"\'", "y": [true, null]}', whole=True)],
        ),
        (Style.PYTHONIC, "[f(1)]", "[f(1)]", []),
        (Style.PYTHONIC, "[f(x=y)]", "[f(x=y)]", []),
        (Style.PYTHONIC, "[1, 2] [f()]", "[1, 2] [f()]", []),
        (Style.JSON, f"Now:\n```json\n{CALL}\n{CALL}\n```\nDone.", "Now:\nDone.", [LOOK, LOOK]),
        (Style.JSON, f"```\n[{CALL}]\n```", "", [LOOK]),
        (Style.JSON, f"So <tool_call>{CALL}</tool_call>", "So ", [LOOK]),
        (Style.JSON, f"<tool_calls>\n{CALL}\n{CALL}\n</tool_calls>\nSo", "\nSo", [LOOK, LOOK]),
        (Style.JSON, f"<|tool_call|>[{CALL}]", "", [LOOK]),
        (Style.JSON, f" functools[{CALL}, {CALL}]", "", [LOOK, LOOK]),
        (Style.JSON, '<|START_ACTION|>[{"tool_name": "f", "parameters": {}}]<|END', "", [Call("f", "{}", whole=True)]),
        (Style.JSON, "functools[1]", "functools[1]", []),
        (Style.JSON, "```python\nprint(1)\n```", "```python\nprint(1)\n```", []),
        (Style.JSON, "[1, 2]", "[1, 2]", []),
    ],
)
def test_calls_and_content(style: Style, text: str, content: str, calls: list[Call]) -> None:
    assert read(style, TOOLS, text, whole=True) == Said(content, calls)


XML = {"look": tool(a={"type": "integer"}, b={"type": "string"}, c={"type": ["string", "null"]})}


@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        ("", {}),
        ("<parameter=a>\n1\n</parameter>\n", {"a": 1}),
        ("<parameter=a>1</parameter><parameter=b>1</parameter>", {"a": 1, "b": "1"}),
        ("<parameter=b>\n\n x\n\n</parameter>\n<parameter=c>\nnull\n</parameter>", {"b": "\n x\n", "c": None}),
        ("<parameter=b>\n\n</parameter>\n", {"b": ""}),
        ("<parameter=b>\n</parameter>\n", {"b": ""}),
        ("<parameter=b>\nx\n<parameter=a>\n2\n", {"b": "x", "a": 2}),
        ("<parameter=b>\n</parameter> <parameter=x\n</parameter>", {"b": "</parameter> <parameter=x"}),
        ('<parameter=b>\n"\\"\x01\n</parameter>', {"b": '"\\"\x01'}),
        ("<parameter=a>\nmany\n</parameter>\n<parameter=d>\n[True]\n</parameter>", {"a": "many", "d": "[True]"}),
    ],
)
def test_parameters_in_xml(parameters: str, arguments: dict[str, Any]) -> None:
    said = read(Style.QWEN_XML, XML, f"<tool_call>\n<function=look>\n{parameters}</function>\n</tool_call>")
    assert (said.content, [(call.name, call.whole) for call in said.calls]) == ("", [("look", True)])
    assert json.loads(said.calls[0].arguments) == arguments


def test_calls_are_told_as_they_grow() -> None:
    reader = CallReader(NOTATIONS[Style.HERMES], TOOLS)
    assert reader.feed("Well.\n<tool_") == [Content("Well.")]
    assert reader.feed('call>{"name": "look", "argum') == []
    assert reader.feed('ents": {"b": "x') == [CallBegan(0, "look"), ArgumentsGrew(0, '{"b": "x')]
    assert reader.feed("y\\u00") == [ArgumentsGrew(0, "y")]
    assert reader.feed('e9"') == [ArgumentsGrew(0, '\\u00e9"')]
    assert reader.feed("}") == [ArgumentsGrew(0, "}")]
    assert reader.feed("}") == [CallEnded(0)]
    assert reader.feed("\n</tool_call>\n\n") == reader.finish() == []


def test_strings_in_xml_grow_and_other_values_come_at_once() -> None:
    reader = CallReader(NOTATIONS[Style.QWEN_XML], XML)
    assert reader.feed("<tool_call><function=look><parameter=a>1") == [
        CallBegan(0, "look"),
        ArgumentsGrew(0, '{"a": '),
    ]
    assert reader.feed("2</parameter><parameter=b>x\n</") == [ArgumentsGrew(0, '12, "b": "x')]
    assert reader.feed("p>") == [ArgumentsGrew(0, "\\n</p>")]
    assert reader.feed("</parameter></function>") == [ArgumentsGrew(0, '"}'), CallEnded(0)]


@pytest.mark.parametrize("style", [Style.LLAMA, Style.JSON])
def test_other_json_is_told_from_its_first_key_on(style: Style) -> None:
    reader = CallReader(NOTATIONS[style], TOOLS)
    assert reader.feed('{"answer') == []
    assert reader.feed('": {"name') == [Content('{"answer": {"name')]


def test_what_was_told_stands_and_the_rest_of_a_broken_call_is_content() -> None:
    text = 'So <tool_call>{"name": "look", "arguments": {"a": 1, b}}</tool_call>'
    assert read(Style.HERMES, TOOLS, text) == Said("So b}}</tool_call>", [Call("look", '{"a": 1, ', whole=False)])
    assert read(Style.HERMES, TOOLS, text, whole=True) == Said(text)
    cut = text[:50]
    assert read(Style.HERMES, TOOLS, cut) == Said("So ", [Call("look", '{"a": ', whole=False)])
    assert read(Style.HERMES, TOOLS, cut, whole=True) == Said(cut)


def test_a_call_behind_a_broken_one_is_read() -> None:
    broken = '<tool_call>{"name": "look", "arguments": {"a": '
    said = read(Style.HERMES, TOOLS, f"{broken}<tool_call>{CALL}</tool_call>")
    assert said == Said("", [Call("look", '{"a": ', whole=False), LOOK])
    assert read(Style.HERMES, TOOLS, f"{broken}<tool_call>{CALL}", whole=True) == Said(broken, [LOOK])


@pytest.mark.parametrize("text", ["<tool_call>", "<tool_call>\n", '<tool_call>{"name": "look", "arg', "<tool_", "<"])
def test_the_beginning_of_a_call_at_the_end_is_content_unless_it_is_only_a_marker(text: str) -> None:
    content = "" if text.strip() == "<tool_call>" else text
    assert read(Style.HERMES, TOOLS, text).content == content


@pytest.mark.parametrize("text", ["", " \n", "a\n\n", "\n a \n"])
def test_whitespace_without_calls_is_content(text: str) -> None:
    assert read(Style.HERMES, TOOLS, text) == Said(text)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (r'"\ud83d\ude00"', r'"\ud83d\ude00"'),
        (r'"\ud83d"', r'"\ufffd"'),
        (r'"\ude00x"', r'"\ufffdx"'),
        (r'"\ud83d\ud83d\ude00"', r'"\ufffd\ud83d\ude00"'),
        (r'"\ud83d\n"', r'"\ufffd\n"'),
        ('"a\nb\t"', r'"a\nb\t"'),
        (r'"\d\'"', r'"\\d' + "'\""),
        ('{"}": "{", "x": [[], {}, -0.5e+3]}', '{"}": "{", "x": [[], {}, -0.5e+3]}'),
        ("12345678901234567890123", "12345678901234567890123"),
    ],
)
def test_values_are_told_as_every_reader_of_json_takes_them(given: str, told: str) -> None:
    said = read(Style.HERMES, TOOLS, f'<tool_call>{{"name": "f", "arguments": {{"x": {given}}}}}</tool_call>')
    assert said == Said("", [Call("f", f'{{"x": {told}}}', whole=True)])
    json.loads(said.calls[0].arguments)["x"].__repr__().encode()  # no half of a surrogate pair


@pytest.mark.parametrize(
    "value",
    ["01", "1.", ".5", "1e", "+1", "NaN", "tru", "True", "'x'", "[1,]", "{1: 2}", '"\\u12x4"', "1 2", "[" * 300],
)
def test_what_is_no_json_breaks_the_call(value: str) -> None:
    text = f'<tool_call>{{"name": "f", "arguments": {{"x": {value}}}}}</tool_call>'
    assert read(Style.HERMES, TOOLS, text, whole=True) == Said(text)


def test_long_texts_that_are_nearly_calls_take_time_in_proportion() -> None:
    """Nothing is read more than a few times: this would take minutes otherwise."""
    for style, piece in [
        (Style.JSON, '{"arguments":\n'),
        (Style.HERMES, "<tool_call>{"),
        (Style.HERMES, '<tool_call>{"arguments":["x",'),
        (Style.HERMES, "\n"),
        (Style.QWEN_XML, "<tool_call><function=look><parameter=b>\n</parameter>"),
        (Style.GEMMA, "<|tool_call>call:f{a:"),
        (Style.MISTRAL, "[TOOL_CALLS] [{"),
    ]:
        text = piece * (40_000 // len(piece))
        assert read(style, TOOLS, text, range(0, len(text), 4), whole=True).calls == []
