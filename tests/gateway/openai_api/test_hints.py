"""Hints: what cannot make an answer wrong is taken, and named in the reply's header and once in the log."""

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from specpair.http_service import hints
from tests.gateway.openai_api.parrot import LOOK, TOOLS, Parrot, end_of, parrot_alone, parrots

Json = dict[str, Any]
USER = {"role": "user", "content": "Hi"}
CHAT: Json = {"messages": [USER], "max_tokens": 4}
TEXT: Json = {"prompt": "Hi", "max_tokens": 4}
RESPONSE: Json = {"input": "Hi", "max_output_tokens": 16}
NAME = "x-specpair-ignored"


@pytest.fixture(scope="module", params=["target", "drafter"])
def http(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    with parrots(request.param) as url, httpx.Client(base_url=url, timeout=60) as http:
        yield http


def ignored(http: httpx.Client, path: str, body: Json) -> str:
    """The names in the header of the reply to a request, which is the same for a stream."""
    found = []
    for more in ({}, {"stream": True}) if "count" not in path else ({},):
        reply = http.post(f"/v1/{path}", json=body | more)
        assert reply.status_code == 200, reply.text
        found.append(reply.headers.get(NAME, ""))
    assert len({*found}) == 1
    return found[0]


CHATS, RESPONSES, MESSAGES, COUNTS = "chat/completions", "responses", "messages", "messages/count_tokens"
OFF, ON = {"type": "disabled"}, {"type": "enabled", "budget_tokens": 1024}
WHOLE = {"max_tokens": 4.0, "n": 1.0, "seed": 5.0, "top_k": 40.0, "logprobs": True, "top_logprobs": 2.0}


@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        *((path, body | {"verbosity": "low"}, "verbosity") for path, body in ((CHATS, CHAT), ("completions", TEXT))),
        (CHATS, CHAT | {"verbosity": None, "user": "u", "keep_alive": "5m", "anything": False}, ""),
        (CHATS, CHAT | WHOLE | {"stop": "", "top_p": 0, "tools": [], "response_format": {}, "tool_choice": "auto"}, ""),
        (CHATS, CHAT | {"reasoning_effort": "low"}, "reasoning_effort"),
        (CHATS, CHAT | {"reasoning": {"effort": "none", "summary": "auto"}}, "reasoning.effort"),
        (CHATS, CHAT | {"enable_thinking": False}, "enable_thinking"),
        (CHATS, CHAT | {"think": False}, "think"),
        (CHATS, CHAT | {"thinking": ON}, "thinking, thinking.budget_tokens"),
        (CHATS, CHAT | {"thinking_budget_tokens": 64, "usage": {"include": True}}, "thinking_budget_tokens, usage"),
        (CHATS, CHAT | {"chat_template_kwargs": {"think": True, "other": 1}}, "chat_template_kwargs.other"),
        (CHATS, CHAT | {"include_reasoning": False, "max_tokens": 4, "max_completion_tokens": 4}, ""),
        ("completions", TEXT | {"thinking": OFF, "reasoning_effort": "low"}, "thinking, reasoning_effort"),
        (RESPONSES, RESPONSE | {"text": {"verbosity": "low"}}, "text.verbosity"),
        (RESPONSES, RESPONSE | {"reasoning": {"effort": "low", "summary": "detailed"}}, "reasoning"),
        (RESPONSES, RESPONSE | {"truncation": "auto", "enable_thinking": False}, "truncation, enable_thinking"),
        (RESPONSES, {"input": "Hi", "max_output_tokens": 16.0, "top_p": 0.0, "stream_options": {}}, ""),
        *((path, CHAT | {"thinking": OFF}, "thinking") for path in (MESSAGES, COUNTS)),
        (MESSAGES, CHAT | {"output_config": {"effort": "low"}}, "output_config.effort"),
        (MESSAGES, CHAT | {"output_config": {"effort": "high"}, "stop_sequences": [""], "tool_choice": "auto"}, ""),
        (MESSAGES, CHAT | {"tools": [TOOLS[0]], "stop": "", "response_format": {"type": "text"}, "n": 1}, ""),
        (MESSAGES, CHAT | {"tools": [{"name": "f", "parameters": {"type": "object"}}, {"name": "g"}]}, ""),
        (MESSAGES, CHAT | {"messages": [{"role": "user", "content": None}]}, ""),
        (RESPONSES, RESPONSE | {"tools": [TOOLS[0]], "tool_choice": {"type": "any"}, "previous_response_id": ""}, ""),
        (MESSAGES, CHAT | {"context_management": {"edits": [{"type": "clear_tool_uses"}]}}, "context_management"),
    ],
)
def test_hints_are_named_in_the_reply(http: httpx.Client, path: str, body: Json, names: str) -> None:
    found = ignored(http, path, body).split(", ")
    assert sorted(found) == sorted(names.split(", ")) or (names == "reasoning" and all(map(names.__le__, found)))


def test_options_of_a_stream_without_one_are_named(http: httpx.Client) -> None:
    reply = http.post("/v1/chat/completions", json=CHAT | {"stream_options": {"include_usage": True}})
    assert (reply.status_code, reply.headers[NAME]) == (200, "stream_options")


@pytest.mark.parametrize(
    ("path", "body"), [(CHATS, CHAT), ("completions", TEXT), (RESPONSES, RESPONSE), (MESSAGES, CHAT)]
)
def test_minus_one_is_no_limit(http: httpx.Client, path: str, body: Json) -> None:
    body = {name: -1 if name.startswith("max") else value for name, value in body.items()}
    reply = http.post(f"/v1/{path}", json=body | {"temperature": 0})
    assert reply.status_code == 200, reply.text


def test_thoughts_that_are_not_wanted_are_left_out(http: httpx.Client) -> None:
    said = {"messages": [{"role": "user", "content": "<think>\nWhy?\n</think>\n\nWell."}], "max_tokens": 64}
    for wanted in ({}, {"include_reasoning": False}, {"reasoning": {"exclude": True}}, {"reasoning_format": "hidden"}):
        message = http.post("/v1/chat/completions", json=said | wanted).json()["choices"][0]["message"]
        assert message["content"] == "Well." and ("reasoning_content" in message) == (not wanted)
        blocks = http.post("/v1/messages", json=said | ({} if "reasoning_format" in wanted else wanted)).json()[
            "content"
        ]
        assert [block["type"] for block in blocks][-1] == "text"


@pytest.mark.parametrize("name", ["look", "add"])
def test_only_allowed_tools_are_called(http: httpx.Client, name: str) -> None:
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": name}]}
    asked = {"messages": [{"role": "user", "content": LOOK}], "tools": TOOLS, "max_tokens": 99, "seed": 1}
    message = http.post("/v1/chat/completions", json=asked | {"tool_choice": choice}).json()["choices"][0]["message"]
    assert {call["function"]["name"] for call in message.get("tool_calls", ())} <= {name}
    assert '"look"' not in message["content"] if name == "add" else message["tool_calls"]


def test_hundreds_of_tools_are_taken() -> None:
    tools = [{"name": f"tool_{at}", "parameters": {"type": "object"}} for at in range(600)]
    with parrot_alone(Parrot(context=200_000), max_body_bytes=2**20) as url:
        reply = httpx.post(f"{url}/v1/chat/completions", json=CHAT | {"tools": tools}, timeout=60)
    assert reply.status_code == 200, reply.text


def test_hints_of_a_long_body_are_named() -> None:
    with parrot_alone(Parrot(), max_body_bytes=2**20) as url:
        reply = httpx.post(f"{url}/v1/chat/completions", json=CHAT | {"verbosity": "low", "user": "u" * 65_536})
    assert reply.headers[NAME] == "verbosity"


def test_the_log_names_a_hint_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        found = hints.Hints(strict=False)
        hints.enter(found)
        hints.take_hint("messages.3.once.0.x")
        hints.take_hint("messages.4.once.0.x")
        hints.take_hint("only_once.a\r\nSet-Cookie: b")
        assert found.header() == [(b"x-specpair-ignored", b"messages.once.x, only_once")]
    said = [record.getMessage() for record in caplog.records if record.name == "specpair.hints"]
    assert said == ["taken without effect: messages.once.x, only_once"]


@pytest.fixture(scope="module")
def strict() -> Iterator[dict[str, str]]:
    """The addresses of a strict verifier and of a strict drafter."""
    with parrot_alone(Parrot(), strict=True) as url, end_of("drafter", url, strict=True) as drafter:
        yield {"target": url, "drafter": drafter}


@pytest.mark.parametrize("kind", ["target", "drafter"])
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("chat/completions", CHAT | {"verbosity": "low"}, "verbosity"),
        ("responses", RESPONSE | {"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
        (CHATS, CHAT | {"enable_thinking": False}, "enable_thinking"),
        (CHATS, CHAT | {"thinking_budget": 0}, "thinking_budget"),
        (CHATS, CHAT | {"think": True}, "think"),
        (CHATS, CHAT | {"chat_template_kwargs": {"foo": 1}}, "chat_template_kwargs.foo"),
        (MESSAGES, CHAT | {"thinking": OFF}, "thinking"),
    ],
)
def test_strict_services_refuse_hints(strict: dict[str, str], kind: str, path: str, body: Json, param: str) -> None:
    error = httpx.post(f"{strict[kind]}/v1/{path}", json=body).json()["error"]
    assert error["param"] == param and error["message"].startswith(f"{param}: ")


ON_SWITCH = {"enable_thinking": True}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (ON_SWITCH | {"think": False}, "think"),
        (ON_SWITCH | {"enable_reasoning": False}, "enable_reasoning"),
        (ON_SWITCH | {"reasoning_effort": "none"}, "reasoning_effort"),
        (ON_SWITCH | {"thinking_budget": 0}, "thinking_budget"),
        (ON_SWITCH | {"reasoning": {"enabled": False}}, "reasoning.enabled"),
        ({"thinking": ON, "think": False}, "think"),
        ({"reasoning_effort": "high", "reasoning": {"effort": "none"}}, "reasoning.effort"),
        ({"chat_template_kwargs": {"add_generation_prompt": False}}, "chat_template_kwargs.add_generation_prompt"),
        ({"chat_template_kwargs": {"messages": [USER]}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"tools": TOOLS}}, "chat_template_kwargs.tools"),
        ({"options": {"num_ctx": 8192}}, "options"),
    ],
)
@pytest.mark.parametrize(("path", "base"), [(CHATS, CHAT), (RESPONSES, RESPONSE), (MESSAGES, CHAT)])
def test_what_contradicts_itself_is_refused(http: httpx.Client, path: str, base: Json, body: Json, param: str) -> None:
    reply = http.post(f"/v1/{path}", json=base | body)
    assert (reply.status_code, reply.json()["error"].get("param")) == (400, param), reply.text
