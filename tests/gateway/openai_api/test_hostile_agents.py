"""What a hostile agent may send, or a model write: a typed error that names the field, or an answer that is right."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.openai_api.tools.styles import Style
from tests.gateway.openai_api.parrot import TEMPLATE, Parrot, parrot_alone

pytestmark = pytest.mark.usefixtures("no_fault_is_logged")
MANY: Any = {"type": "object", "properties": {f"p{at}": {"description": "x" * 1000} for at in range(1000)}}  # 1 MB
LOOP: Any = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "\\ud800"}}\n</tool_call>'


@pytest.fixture(scope="module", params=[Style.HERMES, Style.LLAMA, Style.GEMMA, Style.QWEN_XML])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    plain = TEMPLATE.replace("<think>", "")  # or most texts would be thoughts
    with parrot_alone(Parrot(plain), max_body_bytes=2**22, tool_style=request.param.value) as found:
        yield found


def _asked(url: str, path: str = "/v1/chat/completions", **given: Any) -> Any:
    """The reply to a request, and its status. Another text is as before."""
    said = {"input": "Hi"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "Hi"}]}
    most = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
        reply = http.post(path, json=said | {most: 200, "seed": 1} | given)
        other = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "Other"}]})
    assert other.json()["choices"][0]["message"]["content"] == "Other"
    return reply.status_code, reply.json()


def _tool(parameters: Any, **function: Any) -> Any:
    return {"type": "function", "function": {"name": "f", "parameters": parameters, **function}}


def _format(schema: Any) -> Any:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


@pytest.mark.parametrize(
    ("given", "param"),
    [
        (_format(MANY), "response_format.json_schema.schema"),
        ({"tools": [_tool(MANY)]}, "messages"),
        ({"tools": [_tool(MANY)], "tool_choice": "required"}, "messages"),
        (_format(LOOP), "json_schema"),
        (_format({"$ref": "#"}), "json_schema"),
        ({"tools": [_tool({"properties": {"a": LOOP}} | LOOP["$defs"])], "tool_choice": "required"}, "tools"),
        ({"regex": "(" * 2000 + "a" + ")" * 2000}, "regex"),
        ({"tools": [_tool({}, name="<|im_end|>")]}, "tools.0.function.name"),
        ({"tools": [_tool({}, name="<tool_call>")]}, "tools.0.function.name"),
        ({"tools": [_tool({}, name="f\ng")]}, "tools.0.function.name"),
    ],
)
def test_what_cannot_be_kept_to_is_a_typed_error(url: str, given: Any, param: str) -> None:
    status, reply = _asked(url, **given)
    assert (status, reply["error"]["param"]) == (400, param), reply
    assert len(reply["error"]["message"]) < 500


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_half_of_a_surrogate_pair_in_arguments_is_replaced(url: str, path: str) -> None:
    """Where a model writes it, and where a program sends it back."""
    tools: list[Any] = [_tool({})]
    said: dict[str, Any] = {"messages": [{"role": "user", "content": CALL}]}
    if path == "/v1/messages":
        tools = [{"name": "f", "input_schema": {}}]
    elif path == "/v1/responses":
        tools, said = [{"type": "function", "name": "f"}], {"input": CALL}
    status, reply = _asked(url, path, tools=tools, **said)
    assert status == 200
    json.dumps(reply, ensure_ascii=False).encode()  # there is none in it
    history: Any = [
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": '{"a": "\\ud800"}'}}]},
        {"role": "tool", "tool_call_id": "1", "content": "Done"},
        {"role": "user", "content": "Hi"},
    ]
    assert _asked(url, messages=[*history], tools=[_tool({})])[0] == 200


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/v1/chat/completions", {"tools": [_tool({})]}),
        ("/v1/messages", {"tools": [{"name": "f", "input_schema": {}}]}),
        ("/v1/responses", {"tools": [{"type": "function", "name": "f"}]}),
    ],
)
def test_a_template_that_ignores_tools(path: str, given: Any) -> None:
    ignores = "{% for message in messages %}<{{ message.role }}>{{ message.content }}</>{% endfor %}<assistant>"
    with parrot_alone(Parrot(ignores)) as url:
        status, reply = _asked(url, path, **given)
        assert (status, reply["error"]["param"]) == (400, "tools") and "does not show any" in reply["error"]["message"]
