"""Custom tools, which take a free text: in chats and Responses, whole and streamed, forced by Lark and by regex."""

import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from gateway.openai_api.tools.styles import Style
from tests.gateway.openai_api.parrot import LOOK, TOOLS, client_of, parrots
from tests.gateway.openai_api.tools.support import CUSTOM, PATCH, TEXT, call_with, patch_call

LARK = CUSTOM | {"format": {"type": "grammar", "syntax": "lark", "definition": PATCH}}
REGEX = CUSTOM | {"format": {"type": "grammar", "syntax": "regex", "definition": r"^[0-9]{1,3} \"[a-c/]{1,3}\"$"}}


@pytest.fixture(scope="module", params=["target", "drafter"])
def client(request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with parrots(request.param) as url, client_of(url) as client:
        yield client


def in_chat(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool of Responses in the form of chats."""
    custom = {name: each for name, each in tool.items() if name != "type"}
    if "format" in custom:
        inner = {name: each for name, each in custom["format"].items() if name != "type"}
        custom["format"] = {"type": custom["format"]["type"]} | ({"grammar": inner} if inner else {})
    return {"type": "custom", "custom": custom}


def respond(client: openai.OpenAI, text: Any, *, stream: bool, **options: Any) -> Any:
    given: Any = {"model": "", "input": text, "tools": [CUSTOM], "extra_body": {"seed": 1}} | options
    if not stream:
        return client.responses.create(**given)
    with client.responses.stream(**given) as streamed:
        return streamed.get_final_response()


def chat(client: openai.OpenAI, text: str, *, stream: bool, **options: Any) -> tuple[list[tuple[str, str]], str | None]:
    """Names and texts of the calls of a chat's answer, and why it has ended."""
    given: Any = {"model": "", "messages": [{"role": "user", "content": text}], "seed": 1} | options
    if not stream:
        choice = client.chat.completions.create(**given).choices[0]
        calls: list[Any] = [*(choice.message.tool_calls or ())]
        assert all(call.type == "custom" and call.id for call in calls)
        return [(call.custom.name, call.custom.input) for call in calls], choice.finish_reason
    found: dict[int, list[str]] = {}
    reason = None
    for chunk in client.chat.completions.create(stream=True, **given):
        reason = chunk.choices[0].finish_reason or reason
        for call in chunk.choices[0].delta.to_dict().get("tool_calls", ()):
            custom = call["custom"]
            if "id" in call:
                assert call["type"] == "custom"
                found[call["index"]] = [custom["name"], ""]
            found[call["index"]][1] += custom["input"]
    return [(name, text) for name, text in found.values()], reason


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tool", [CUSTOM, CUSTOM | {"format": {"type": "text"}}, LARK])
@pytest.mark.parametrize("choice", ["auto", "required", "named"])
def test_a_call_has_a_text_in_place_of_arguments(client: openai.OpenAI, stream: bool, tool: Any, choice: str) -> None:
    named: Any = {"type": "custom", "name": "patch"} if choice == "named" else choice
    response = respond(client, patch_call(TEXT), stream=stream, tools=[tool], tool_choice=named)
    (item,) = response.output
    assert (item.type, item.name, item.input, item.status) == ("custom_tool_call", "patch", TEXT, "completed")
    assert item.id.startswith("ctc_") and item.call_id and response.tools[0].type == "custom"
    named = {"type": "custom", "custom": {"name": "patch"}} if choice == "named" else choice
    found = chat(client, patch_call(TEXT), stream=stream, tools=[in_chat(tool)], tool_choice=named)
    assert found == ([("patch", TEXT)], "tool_calls")


# How each style writes a call with the text, and with the text in JSON.
WRITTEN = {
    Style.HERMES: '<tool_call>\n{{"name": "patch", "arguments": {{"input": {json}}}}}\n</tool_call>',
    Style.QWEN_XML: "<tool_call>\n<function=patch>\n<parameter=input>\n{text}\n</parameter>\n</function>\n</tool_call>",
    Style.LLAMA: '{{"name": "patch", "parameters": {{"input": {json}}}}}',
    Style.MISTRAL: '[TOOL_CALLS]patch[ARGS]{{"input": {json}}}',
    Style.MISTRAL_LIST: '[TOOL_CALLS][{{"name": "patch", "arguments": {{"input": {json}}}}}]',
    Style.GEMMA: '<|tool_call>call:patch{{input:<|"|>{text}<|"|>}}<tool_call|>',
    Style.PYTHONIC: "[patch(input={json})]",
    Style.JSON: '[{{"name": "patch", "arguments": {{"input": {json}}}}}]',
}


@pytest.mark.parametrize("style", WRITTEN)
def test_a_call_that_must_come_keeps_to_the_grammar_in_each_style(style: Style) -> None:
    with parrots("target", style=style) as url, client_of(url) as client:
        for tool, text in ((LARK, TEXT), (LARK, TEXT[:-1]), (REGEX, '12 "a/b"'), (REGEX, "none")):
            call = WRITTEN[style].format(text=text, json=json.dumps(text, ensure_ascii=False))
            given: Any = {"tools": [in_chat(tool)], "tool_choice": "required", "parallel_tool_calls": False}
            ((name, found),), reason = chat(client, call, stream=False, **given)
            assert (name, reason) == ("patch", "tool_calls")
            if text != "none":
                assert found == text
            else:
                assert re.fullmatch(r'[0-9]{1,3} "[a-c/]{1,3}"', found), "other tokens were masked"


def test_a_free_call_keeps_to_the_grammar_where_the_style_has_a_marker(client: openai.OpenAI) -> None:
    (item,) = respond(client, patch_call("1 no quotes"), stream=False, tools=[REGEX], max_output_tokens=200).output[:1]
    assert item.type == "custom_tool_call" and item.input.startswith('1 "')
    assert respond(client, "No call.", stream=False, tools=[REGEX]).output_text == "No call."


def test_both_kinds_of_tools(client: openai.OpenAI) -> None:
    tools = [CUSTOM, {"type": "function", "name": "look", "parameters": TOOLS[0]["function"]["parameters"]}]
    output = respond(client, f"{patch_call('x')}\n{LOOK}", stream=True, tools=tools).output
    assert [item.type for item in output] == ["custom_tool_call", "function_call"]
    namespace = {"type": "namespace", "name": "git", "description": "Of files.", "tools": [CUSTOM]}
    (item,) = respond(client, patch_call("x").replace("patch", "git.patch"), stream=False, tools=[namespace]).output
    assert (item.name, item.namespace, item.input) == ("patch", "git", "x")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input": "a\\u00e4\\ud83d\\ude00\\"\\\\"}', 'aä😀"\\'),
        ('{ "patch" : "a" , "b": 1}', "a"),
        ('{"input": 5}', '{"input": 5}'),
        ("{}", ""),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_texts_that_a_model_writes(client: openai.OpenAI, arguments: str, text: str, stream: bool) -> None:
    assert chat(client, call_with(arguments), stream=stream, tools=[in_chat(CUSTOM)])[0] == [("patch", text)]
