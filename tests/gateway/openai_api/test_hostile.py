"""Hostile agents and foreign pages: a typed error that names the field, or nothing answers to the name."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from backends.scripted import ScriptedBackend
from gateway.openai_api.tools.styles import Style
from tests.gateway.openai_api.conftest import endpoints, verifier
from tests.gateway.openai_api.parrot import TEMPLATE, Parrot, parrot_alone
from verifier_server.app import create_app
from verifier_server.settings import Settings

EVIL = "evil.example:8000"
PAGE = {"Host": EVIL, "Origin": f"http://{EVIL}"}  # to the browser, the page and the service are of one origin
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "x"}
PREFLIGHT = {"Access-Control-Request-Method": "POST"}
TEXT = {"prompt": "x", "max_tokens": 1}
READ = [
    *("/health", "/live", "/ready", "/metrics", "/usage", "/model", "/v1/models"),
    *("/docs", "/docs/", "/openapi.json", "/sessions", "/sessions/s/stream", "/no"),
]
ASKED: list[tuple[str, str, dict[str, str], Any]] = [
    *(("GET", path, {}, None) for path in READ),
    *(("POST", path, {}, TEXT) for path in ("/generate", "/verify", "/verify/", "/prefill", "/v1/completions")),
    ("DELETE", "/sessions/s", {}, None),
    ("OPTIONS", "/v1/completions", PREFLIGHT, None),
    ("GET", "/health", UPGRADE, None),
    ("GET", "/", {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"}, None),
]


@pytest.fixture(scope="module", params=["target", "drafter"])
def http(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    with endpoints(request.param) as (url, _), httpx.Client(base_url=url, trust_env=False, timeout=20) as http:
        yield http


@pytest.mark.parametrize(("method", "path", "headers", "body"), ASKED)
def test_a_foreign_name_gets_nothing(http: httpx.Client, method: str, path: str, headers: Any, body: Any) -> None:
    for host in (PAGE, {"Host": EVIL}):
        response = http.request(method, path, headers=headers | host, json=body)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (403, "foreign_host")
        assert "'evil.example'" in error["message"] and "allowed_hosts" in error["message"].lower()


def statuses(http: httpx.Client, path: str) -> list[int]:
    return [http.get(path, headers={"Host": host}).status_code for host in ("localhost", "big.example:80", EVIL)]


def test_with_a_key_every_name_is_served() -> None:
    with verifier(api_key="k") as live:
        assert statuses(live.http, "/health") == [200, 200, 200]
        assert statuses(live.http, "/sessions") == [401, 401, 401]


def test_an_upgrade_to_a_foreign_name_is_refused() -> None:
    """uvicorn hands it over so if a package for WebSocket is installed."""
    sent: list[Any] = []

    async def ask() -> None:
        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        app = create_app(Settings(backend="scripted"), ScriptedBackend())
        for host in (b"localhost", EVIL.encode()):
            scope = {"type": "websocket", "path": "/", "headers": [(b"host", host)], "query_string": b""}
            await app(scope, receive, send)

    asyncio.run(ask())
    assert [message["type"] for message in sent] == ["websocket.close", "websocket.close"], "there is no WebSocket here"


pytestmark = pytest.mark.usefixtures("no_fault_is_logged")
MANY: Any = {"type": "object", "properties": {f"p{at}": {"description": "x" * 1000} for at in range(1000)}}  # 1 MB
LOOP: Any = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "\\ud800"}}\n</tool_call>'


@pytest.fixture(scope="module", params=[Style.HERMES, Style.LLAMA, Style.GEMMA, Style.QWEN_XML])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    plain = TEMPLATE.replace("<think>", "")  # or most texts would be thoughts
    with parrot_alone(Parrot(plain), max_body_bytes=2**22, tool_style=request.param.value) as found:
        yield found


def _replied(url: str, path: str = "/v1/chat/completions", **given: Any) -> Any:
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
        (
            {"tools": [_tool({"properties": {"a": LOOP}} | LOOP["$defs"])], "tool_choice": "required"},
            "tools",
        ),
        ({"regex": "(" * 2000 + "a" + ")" * 2000}, "regex"),
        ({"tools": [_tool({}, name="<|im_end|>")]}, "tools.0.function.name"),
        ({"tools": [_tool({}, name="<tool_call>")]}, "tools.0.function.name"),
        ({"tools": [_tool({}, name="f\ng")]}, "tools.0.function.name"),
    ],
)
def test_what_cannot_be_kept_to_is_a_typed_error(url: str, given: Any, param: str) -> None:
    status, reply = _replied(url, **given)
    named = reply["error"]["param"].removesuffix(".0.function.parameters")  # where a style shows the place
    assert (status, named) == (400, param), reply
    assert len(reply["error"]["message"]) < 500


TOOLS: dict[str, Any] = {
    "/v1/chat/completions": [_tool({})],
    "/v1/messages": [{"name": "f", "input_schema": {}}],
    "/v1/responses": [{"type": "function", "name": "f"}],
}


@pytest.mark.parametrize("path", TOOLS)
def test_half_of_a_surrogate_pair_in_arguments_is_replaced(url: str, path: str) -> None:
    """Where a model writes it, and where a program sends it back."""
    said = {"input": CALL} if path == "/v1/responses" else {"messages": [{"role": "user", "content": CALL}]}
    status, reply = _replied(url, path, tools=TOOLS[path], **said)
    assert status == 200
    json.dumps(reply, ensure_ascii=False).encode()  # there is none in it
    history: Any = [
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": '{"a": "\\ud800"}'}}]},
        {"role": "tool", "tool_call_id": "1", "content": "Done"},
        {"role": "user", "content": "Hi"},
    ]
    assert _replied(url, messages=[*history], tools=[_tool({})])[0] == 200


@pytest.mark.parametrize("path", TOOLS)
def test_a_template_that_ignores_tools(path: str) -> None:
    ignores = "{% for message in messages %}<{{ message.role }}>{{ message.content }}</>{% endfor %}<assistant>"
    with parrot_alone(Parrot(ignores)) as url:
        status, reply = _replied(url, path, tools=TOOLS[path])
        assert (status, reply["error"]["param"]) == (400, "tools") and "does not show any" in reply["error"]["message"]
