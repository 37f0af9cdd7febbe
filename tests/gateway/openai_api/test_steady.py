"""Lines of agents that change with each request are left out, so that a prompt begins as the one before."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.openai_api.prompts import without_lines
from tests.gateway.openai_api.parrot import Parrot, end_of, parrot_alone

Json = dict[str, Any]
NAME = "x-anthropic-billing-header"
LINE = f"{NAME}: cc_version=2.1.197.cc2; cc_entrypoint=cli; cch=%s;"
FIRST, SECOND = LINE % "36ee5", LINE % "0aaa9"
SYSTEM = "Work carefully, and read what is there before you write."
SAME: list[Any] = [SYSTEM, f"{SYSTEM}\n{FIRST}", f"{NAME}: it counts", f"The {FIRST}", "", []]
USER: Json = {"role": "user", "content": "Hi"}


def block(text: str) -> Json:
    return {"type": "text", "text": text}


def asking(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=60, trust_env=False)


@pytest.fixture(scope="module", params=["target", "drafter"])
def http(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    with parrot_alone(Parrot()) as verifier, end_of(request.param, verifier) as url, asking(url) as http:
        yield http


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (f"{FIRST}\n{SYSTEM}", SYSTEM),
        (f"{FIRST}\n\n{SYSTEM}", SYSTEM),
        (f"{FIRST}{SYSTEM}", SYSTEM),
        (f"{NAME}: cc_version=2.1.37\n{SYSTEM}", SYSTEM),
        (FIRST, ""),
        ([block(FIRST), block(SYSTEM)], [block(SYSTEM)]),
        ([block(f"{FIRST}\n{SYSTEM}"), block("")], [block(SYSTEM)]),
        ([block(FIRST)], [block("")]),
        *((same, same) for same in SAME),
    ],
)
def test_what_is_left_of_a_system_prompt(given: Any, left: Any) -> None:
    system: Json = {"role": "system", "content": given}
    assert without_lines([system, system, USER]) == [system | {"content": left}] * 2 + [USER]
    user = USER | {"content": given}
    assert without_lines([user, system]) == [user, system], "others are what somebody said"


def asked(system: Any, path: str, messages: list[Json]) -> Json:
    """A request with this system prompt, in the form of the endpoint."""
    if path == "messages":
        return {"system": system, "messages": messages, "max_tokens": 4}
    if path == "responses":
        return {"instructions": system, "input": messages, "max_output_tokens": 16, "store": False}
    return {"messages": [{"role": "system", "content": system}, *messages], "max_tokens": 4}


def said(http: httpx.Client, body: Json, path: str) -> tuple[int, int, str]:
    """Tokens of the prompt, those of them that were cached, and what the header names."""
    reply = http.post(f"/v1/{path}", json=body | {"temperature": 0})
    assert reply.status_code == 200, reply.text
    usage, named = reply.json()["usage"], reply.headers.get("x-specpair-ignored", "")
    if path == "messages":
        cached = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + cached, cached, named
    of, details = ("input", "input") if path == "responses" else ("prompt", "prompt")
    return usage[f"{of}_tokens"], usage[f"{details}_tokens_details"]["cached_tokens"], named


WHERE = {"messages": "system", "responses": "instructions", "chat/completions": "messages"}


@pytest.mark.parametrize(
    ("path", "own"), [("messages", True), *((path, False) for path in WHERE), ("chat/completions", True)]
)
def test_the_next_turn_of_an_agent_begins_as_the_one_before(http: httpx.Client, path: str, own: bool) -> None:
    """`own`: whether the line is a block of its own."""
    text = f"{SYSTEM} {path} {own}. " + "x" * 300
    turns = [USER], [USER, {"role": "assistant", "content": "Hello"}, USER]
    found = []
    for line, turn in zip((FIRST, SECOND), turns, strict=True):
        system = [block(line), block(text)] if own else f"{line}\n{text}"
        found.append(said(http, asked(system, path, turn), path))
    (first, _, named), (_, cached, also) = found
    assert named == also == f"{WHERE[path]}.{NAME}"
    without = said(http, asked(text, path, turns[0]), path)
    assert without[0] == first and without[2] == ""
    assert cached >= first - 16, "all of the first prompt but what the engine reads again"


def test_tokens_are_counted_without_the_line(http: httpx.Client) -> None:
    body = {"messages": [USER]}
    counted = [
        http.post("/v1/messages/count_tokens", json=body | {"system": system}).json()["input_tokens"]
        for system in ([block(FIRST), block(SYSTEM)], SYSTEM)
    ]
    assert counted[0] == counted[1]


@pytest.mark.parametrize("kind", ["target", "drafter"])
def test_the_line_is_kept_where_that_is_set_and_never_refused(kind: str) -> None:
    def of(system: str, **how: Any) -> tuple[int, int, str]:
        with parrot_alone(Parrot(), **how) as verifier, end_of(kind, verifier, **how) as url, asking(url) as http:
            return said(http, asked(system, "messages", [USER]), "messages")

    tokens, _, named = of(f"{FIRST}\n{SYSTEM}", strict=True)
    assert named == f"system.{NAME}"
    kept, _, named = of(f"{FIRST}\n{SYSTEM}", strict=True, keep_lines=True)
    assert kept == tokens + len(f"{FIRST}\n") and named == ""
