"""Hostile and clumsy requests for messages and responses: a typed error in the API's shape, and no fault."""

import json
import re
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.anthropic_api.requests import MessagesRequest
from gateway.openai_api.messages.fields import TABLE
from gateway.openai_api.responses.requests import ResponseRequest
from tests.gateway.openai_api.messages.support import TEXT, VALUES

pytestmark = pytest.mark.usefixtures("no_fault_is_logged")
MESSAGES: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
ASKED = {
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": {"messages": MESSAGES["messages"]},
    "/v1/responses": {"input": "x", "max_output_tokens": 2},
}
FIELDS = sorted({*MessagesRequest.model_fields, *ResponseRequest.model_fields, *TABLE["MessagesRequest"].only})
PARTS = st.dictionaries(
    st.sampled_from(["type", "role", "content", "text", "name", "id", "input", "tool_use_id", "call_id", "arguments"]),
    st.sampled_from(["text", "user", "tool_use", "tool_result", "message", "function_call", "reasoning"]) | VALUES,
    max_size=5,
)


def _post(url: str, path: str, body: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(url + path, content=content, trust_env=False, timeout=30)


def _check(reply: httpx.Response) -> Any:
    assert reply.status_code in (400, 404), reply.text
    error = reply.json()["error"]
    assert error.keys() >= {"code", "type", "message", "param"} and len(error["message"]) < 1000
    return error


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([*ASKED]),
    st.dictionaries(st.sampled_from(FIELDS) | TEXT, VALUES | st.lists(PARTS, max_size=3), max_size=3),
)
def test_any_object_gets_a_reply_of_the_documented_kind(url: str, path: str, given: dict[str, Any]) -> None:
    reply = _post(url, path, ASKED[path] | {key: value for key, value in given.items() if key != "stream"})
    if reply.status_code != 200:
        _check(reply)


DEEP: list[tuple[str, dict[str, Any]]] = [  # with DEEP where nested lists stand
    (
        "/v1/messages",
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"a": "DEEP"}}],
                },
                *MESSAGES["messages"],
            ]
        },
    ),
    ("/v1/messages", {"tools": [{"name": "f", "input_schema": {"enum": "DEEP"}}], "tool_choice": {"type": "none"}}),
    (
        "/v1/responses",
        {"tools": [{"type": "function", "name": "f", "parameters": {"enum": "DEEP"}}], "tool_choice": "none"},
    ),
]


@pytest.mark.parametrize("depth", [100, 200, 300, 500, 900, 5000])
@pytest.mark.parametrize(("path", "given"), DEEP)
def test_depth(url: str, path: str, given: dict[str, Any], depth: int) -> None:
    body = json.dumps(ASKED[path] | given).replace('"DEEP"', "[" * depth + "]" * depth)
    reply = _post(url, path, body.encode())
    if reply.status_code != 200:
        assert _check(reply)["code"] == "invalid_request"


@pytest.mark.parametrize("path", [*ASKED])
@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"a": 1, "a": 2}', b'{"metadata": {"a": "\\ud800"}}'])
def test_what_is_no_request(url: str, path: str, body: bytes) -> None:
    _check(_post(url, path, body))


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
def test_a_conversation_that_is_too_long(url: str, path: str) -> None:
    said = [{"role": "user", "content": "x" * 600}]
    error = _check(_post(url, path, ASKED[path] | {"messages" if path == "/v1/messages" else "input": said}))
    assert error["code"] == "context_length_exceeded" and error["param"] in ("messages", "input")
    known = re.search(r"prompt is too long: (\d+) tokens > 512 maximum", error["message"])  # to Claude Code
    assert (known is not None and int(known[1]) > 600) == (path == "/v1/messages")


@pytest.mark.parametrize("id", ["%00", "%ff%fe", "x" * 5000, "..%2f.."])
def test_an_unknown_response_is_not_found_whatever_its_id(url: str, id: str) -> None:
    error = _check(httpx.get(f"{url}/v1/responses/{id}", trust_env=False))
    assert error["code"] in ("response_not_found", "not_found")
