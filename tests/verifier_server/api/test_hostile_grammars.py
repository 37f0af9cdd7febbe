"""Ten hostile grammars hold up neither an innocent one, nor the service, nor its end; and leave no memory behind."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from specpair.child_processes.serving import Server, verifier
from tests.waiting import needs_proc

pytestmark = [pytest.mark.slow, needs_proc]

PROMPT: dict[str, Any] = {"prompt_ids": [256, 1, 2], "max_tokens": 5}
# The check of `multipleOf` does not look at choices within choices.
UNFOUND = [
    {"type": "integer", "multipleOf": 3163, "anyOf": [{"anyOf": [{"multipleOf": each}]}]}
    for each in (3167, 3169, 3181, 3187, 3191, 3203)
]
HOSTILE: list[dict[str, Any]] = [{"json_schema": each} for each in UNFOUND[:3]]
HOSTILE += [{"grammar": f"start: %json {json.dumps(each)}"} for each in UNFOUND[3:]]
HOSTILE += [{"regex": f"(a{{1000}}){{{1000 + at}}}"} for at in range(2)]
HOSTILE += [{"json_schema": {"multipleOf": 9999991}}, {"json_schema": {"enum": ["a" * 200_000]}}]


@pytest.fixture
def server() -> Iterator[Server]:
    with verifier(backend="scripted", context_length=512) as served:
        while _ask(served.url, {"regex": "[ab]{3}"})[0] == 503:  # what any grammar takes counts for none
            time.sleep(0.05)
        yield served


def _ask(url: str, grammar: dict[str, Any]) -> tuple[int, str]:
    reply = httpx.post(f"{url}/generate", json=PROMPT | grammar, timeout=200, trust_env=False)
    return reply.status_code, reply.text


def _memory(server: Server) -> float:
    """MB."""
    pages = Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]
    return int(pages) * 4096 / 2**20


def test_an_innocent_grammar_beside_ten_hostile_ones(server: Server) -> None:
    before, replies, lives = _memory(server), list[tuple[int, str]](), list[float]()
    threads = [threading.Thread(target=lambda each=each: replies.append(_ask(server.url, each))) for each in HOSTILE]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    innocent = _ask(server.url, {"json_schema": {"enum": ["left", "right"]}})
    assert innocent[0] == 200, innocent
    assert time.monotonic() - began < 15.0
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        while any(thread.is_alive() for thread in threads):
            asked = time.monotonic()
            client.get("/live")
            lives.append(time.monotonic() - asked)
            time.sleep(0.05)
    assert sorted(lives)[len(lives) * 95 // 100] < 0.1
    assert len(replies) == len(HOSTILE)
    refused = [text for status, text in replies if status == 422]
    assert all("make it simpler" in text or "multipleOf comes to" in text for text in refused) and len(refused) >= 6
    assert {status for status, _ in replies} <= {200, 422}
    assert _memory(server) - before < 50


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_grammar_that_compiles_holds_up_no_end(server: Server, number: signal.Signals) -> None:
    replies = list[tuple[int, str]]()
    threads = [
        threading.Thread(target=lambda each=each: replies.append(_ask(server.url, each))) for each in HOSTILE[:3]
    ]
    for thread in threads:
        thread.start()
    time.sleep(2.0)  # so that one of them has all its time
    server.process.send_signal(number)
    began = time.monotonic()
    server.process.wait(30)
    assert time.monotonic() - began < 10.0
    for thread in threads:
        thread.join(30)
    assert {status for status, _ in replies} <= {503, 422}
