"""Hints: what cannot make an answer wrong is taken, and named in the reply's header and once in the log."""

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from specpair.http_service import hints
from tests.gateway.openai_api.parrot import Parrot, end_of, parrot_alone, parrots

Json = dict[str, Any]
USER = {"role": "user", "content": "Hi"}
CHAT: Json = {"messages": [USER], "max_tokens": 4}
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


@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        ("chat/completions", CHAT | {"verbosity": "low"}, "verbosity"),
        ("chat/completions", CHAT | {"verbosity": None, "user": "u", "keep_alive": "5m"}, ""),
        ("completions", {"prompt": "Hi", "max_tokens": 4, "verbosity": "low"}, "verbosity"),
        (
            "responses",
            RESPONSE | {"text": {"verbosity": "low"}, "reasoning": {"summary": "detailed"}},
            "text.verbosity, reasoning.summary",
        ),
    ],
)
def test_hints_are_named_in_the_reply(http: httpx.Client, path: str, body: Json, names: str) -> None:
    assert ignored(http, path, body) == names


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
    ],
)
def test_strict_services_refuse_hints(strict: dict[str, str], kind: str, path: str, body: Json, param: str) -> None:
    error = httpx.post(f"{strict[kind]}/v1/{path}", json=body).json()["error"]
    assert error["param"] == param and error["message"].startswith(f"{param}: ")
