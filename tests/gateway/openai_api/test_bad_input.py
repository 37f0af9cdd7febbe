"""Hostile and clumsy requests: a typed error, no fault and no traceback, and the texts of others as before."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.anthropic_api.requests import MessagesRequest
from gateway.openai_api.responses.requests import ResponseRequest
from tests.gateway.openai_api.conftest import NAMES, VALUES, endpoints
from tests.gateway.openai_api.conftest import TEXT as ANY_TEXT

pytestmark = pytest.mark.usefixtures("no_fault_is_logged")
TEXT = "/v1/completions"
CHAT = "/v1/chat/completions"
ASKED: dict[str, Any] = {"prompt": "def f(", "max_tokens": 4, "seed": 1}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "x" * 50_000}}


@pytest.fixture(scope="module", params=["fused", "drafter"])
def addresses(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    with endpoints(request.param) as found:
        yield found


@pytest.fixture(scope="module", autouse=True)
def _texts_of_others_are_as_before(url: str) -> Iterator[None]:
    def text() -> str:
        reply = httpx.post(url + TEXT, json=ASKED | {"max_tokens": 12}, trust_env=False, timeout=30)
        return str(reply.json()["choices"][0]["text"])

    before = text()
    yield
    assert text() == before
    assert httpx.get(f"{url}/health", trust_env=False).json()["status"] == "ready"


def _post(url: str, path: str, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(url + path, content=content, headers=headers, trust_env=False, timeout=30)


def _refused(reply: httpx.Response, status: int = 400) -> Any:
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert error.keys() >= {"code", "type", "message", "param"} and len(error["message"]) < 1000
    return error


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"prompt": "x" * 511}, "prompt", "context_length_exceeded"),
        ({"prompt": "x" * 60_000}, "prompt", "context_length_exceeded"),
        ({"prompt": [1] * 512}, "prompt", "context_length_exceeded"),
        ({"prompt": ["x", "y" * 600]}, "prompt.1", "context_length_exceeded"),
        ({"prompt": [[1], []]}, "prompt.1", "empty_prompt"),
        ({"prompt": [10**400]}, "prompt", "token_out_of_range"),
        ({"prompt": ["x"] * 129}, "prompt", "invalid_request"),
        ({"n": 129}, "n", "invalid_request"),
        ({"stop": ["a"] * 5000}, "stop", "invalid_request"),
        ({"stop": "a" * 1025}, "stop", "invalid_request"),
        ({"logit_bias": {"258": 1}}, "logit_bias", "token_out_of_range"),
        ({"logit_bias": {str(token): 1 for token in range(6000)}}, "logit_bias", "token_out_of_range"),
        ({"logit_bias": {str(token): 1 for token in range(4000)}, "n": 26}, "logit_bias", "invalid_request"),
        ({"top_k": 2**63}, "top_k", "invalid_request"),
        ({"repetition_penalty": 5e-324}, "repetition_penalty", "invalid_request"),
        ({"min_tokens": -1}, "min_tokens", "invalid_request"),
        ({"min_tokens": 10**400}, "min_tokens", "invalid_request"),
        ({"min_tokens": 17}, "min_tokens", "invalid_request"),
        ({"ignore_eos": 1}, "ignore_eos", "invalid_request"),
        ({"prediction": {"type": "content", "content": "x" * 50_000}}, "prediction", "context_length_exceeded"),
        ({"model": "x" * 50_000}, "model", "model_not_found"),
    ],
    ids=lambda each: repr(each)[:40],
)
def test_what_cannot_be_done_is_refused_with_a_status_even_for_streams(
    url: str, change: dict[str, Any], param: str, code: str
) -> None:
    for stream in (False, True):
        error = _refused(_post(url, TEXT, ASKED | {"stream": stream} | change), 404 if param == "model" else 400)
        assert (error["param"], error["code"]) == (param, code)


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "x" * 510},
        {"prompt": ""},
        {"prompt": "\x00\u202e\ue000\U0010ffff"},
        {"max_tokens": 10**400, "stop": "a"},
        {"n": 12},
        {"n": 12, "stream": True},
        {"stop": ["a" * size for size in range(1009, 1025)]},
        {"stop": ["a" * size for size in range(1, 17)], "max_tokens": 100},
        {"logit_bias": {str(token): -100 for token in range(258)}},
        {"top_k": 2**53},
        {"min_p": 1, "top_p": 5e-324, "top_k": 1},
        {"temperature": 5e-324},
        {"temperature": 100, "presence_penalty": -2, "frequency_penalty": 2, "repetition_penalty": 100},
        {"seed": -(10**4000)},
        {"logprobs": 20, "n": 2},
    ],
    ids=lambda each: repr(each)[:40],
)
def test_what_is_extreme_is_done(url: str, change: dict[str, Any]) -> None:
    reply = _post(url, TEXT, ASKED | change)
    assert reply.status_code == 200 and '"error"' not in reply.text, reply.text


@pytest.mark.parametrize("content", ["\ue0000\ue001", "</s>", "<s>\x00\u202e", "", "\U0010ffff"])
def test_a_conversation_of_odd_characters_is_answered(url: str, content: str) -> None:
    messages = [
        {"role": "user", "content": content},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "content": [{"type": "text", "text": content}], "tool_call_id": "1"},
    ]
    variables = {"add_generation_prompt": True, "raise_exception": 1, "self": 1}
    asked = {"messages": messages, "max_tokens": 4, "seed": 1}
    reply = _post(url, CHAT, asked | {"chat_template_kwargs": variables})
    assert reply.status_code == 200
    assert reply.json()["choices"] == _post(url, CHAT, asked).json()["choices"]


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "application/json; charset=utf-16"])
def test_the_content_type_does_not_matter(url: str, kind: str) -> None:
    assert _post(url, TEXT, ASKED, **{"content-type": kind}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/scripted-2", "/health", "/live", "/ready", "/metrics"])
def test_a_slash_at_the_end_of_a_path_changes_nothing(url: str, path: str) -> None:
    with httpx.Client(base_url=url, trust_env=False) as http:
        assert http.get(path + "/").status_code == http.get(path).status_code == 200


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"])
@pytest.mark.parametrize(("path", "allowed"), [(TEXT, "POST"), ("/v1/models", "GET, HEAD")])
def test_another_method_is_refused_with_the_one_that_is_allowed(url: str, method: str, path: str, allowed: str) -> None:
    reply = httpx.request(method, url + path, trust_env=False)
    assert reply.status_code == 405 and reply.headers["allow"] == allowed
    assert _refused(reply, 405)["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/embeddings", "/v1/completions/x"])
def test_an_unknown_path_is_not_found(url: str, path: str) -> None:
    assert _refused(httpx.get(url + path, trust_env=False), 404)["code"] == "not_found"


MESSAGES: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
BODIES: dict[str, dict[str, Any]] = {
    TEXT: {"prompt": "x", "max_tokens": 2},
    CHAT: MESSAGES,
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": {"messages": MESSAGES["messages"]},
    "/v1/responses": {"input": "x", "max_output_tokens": 2},
}
FIELDS = sorted({*NAMES, *MessagesRequest.model_fields, *ResponseRequest.model_fields})
PARTS = st.dictionaries(
    st.sampled_from(["type", "role", "content", "text", "name", "id", "input", "tool_use_id", "call_id", "arguments"]),
    st.sampled_from(["text", "user", "tool_use", "tool_result", "message", "function_call", "reasoning"]) | VALUES,
    max_size=5,
)


def _checked(reply: httpx.Response) -> Any:
    """The error of a reply."""
    assert reply.status_code in (400, 404), reply.text
    return _refused(reply, reply.status_code)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([*BODIES]),
    st.dictionaries(st.sampled_from(FIELDS) | ANY_TEXT, VALUES | st.lists(PARTS, max_size=3), max_size=3),
)
def test_any_object_gets_a_reply_in_the_shape_of_its_api(url: str, path: str, given: dict[str, Any]) -> None:
    reply = _post(url, path, BODIES[path] | {key: value for key, value in given.items() if key != "stream"})
    if reply.status_code != 200:
        _checked(reply)


USE: dict[str, Any] = {"type": "tool_use", "id": "1", "name": "f", "input": {"a": "DEEP"}}
TOOL: dict[str, Any] = {"name": "f", "input_schema": {"enum": "DEEP"}}
DEEP: list[tuple[str, dict[str, Any]]] = [  # with DEEP where nested lists stand
    ("/v1/messages", {"messages": [{"role": "assistant", "content": [USE]}, *MESSAGES["messages"]]}),
    ("/v1/messages", {"tools": [TOOL], "tool_choice": {"type": "none"}}),
    ("/v1/responses", {"tools": [{"type": "function"} | TOOL], "tool_choice": "none"}),
]


@pytest.mark.parametrize("depth", [100, 200, 300, 500, 900, 5000])
@pytest.mark.parametrize(("path", "given"), DEEP)
def test_depth(url: str, path: str, given: dict[str, Any], depth: int) -> None:
    body = json.dumps(BODIES[path] | given).replace('"DEEP"', "[" * depth + "]" * depth)
    reply = _post(url, path, body.encode())
    if reply.status_code != 200:
        assert _checked(reply)["code"] == "invalid_request"


@pytest.mark.parametrize("path", [*BODIES])
@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"a": 1, "a": 2}', b'{"metadata": {"a": "\\ud800"}}'])
def test_what_is_no_request(url: str, path: str, body: bytes) -> None:
    _checked(_post(url, path, body))


# What agents look for: OpenCode and pi; LiteLLM, and so aider; Cline and Roo.
OVERFLOW = (r"maximum context length is \d+ tokens", r"this model's maximum context length is", r"\bcontext\s*length\b")


@pytest.mark.parametrize("path", [each for each in BODIES if "count" not in each])
def test_a_prompt_that_is_too_long_is_refused_in_the_words_that_agents_know(url: str, path: str) -> None:
    name = {"/v1/responses": "input", TEXT: "prompt"}.get(path, "messages")
    for text in ("x" * 600, "x" * 60_000):
        given = text if path == TEXT else [{"role": "user", "content": text}]
        error = _checked(_post(url, path, BODIES[path] | {name: given}))
        assert error["code"] == "context_length_exceeded" and error["type"] == "invalid_request_error"
        assert error["param"] == name
        assert all(re.search(pattern, error["message"], re.IGNORECASE) for pattern in OVERFLOW)
        assert re.search(r"is 512 tokens, and you requested \d+ tokens", error["message"])
        known = re.search(r"prompt is too long: (\d+) tokens > 512 maximum", error["message"])  # to Claude Code
        assert (known is not None and int(known[1]) >= 600) == (path == "/v1/messages")


@pytest.mark.parametrize("name", ["a%2Fb", "a/b", "%00", "%ff%fe", "%ED%A0%80", "..%2f..", "x" * 5000, "/"])
def test_what_is_unknown_is_not_found_whatever_its_name(url: str, name: str) -> None:
    error = _refused(httpx.get(f"{url}/v1/models/{name}", trust_env=False), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    error = _checked(httpx.get(f"{url}/v1/responses/{name}", trust_env=False))
    assert error["code"] in ("response_not_found", "not_found")
