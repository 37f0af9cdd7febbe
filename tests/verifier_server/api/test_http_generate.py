"""`POST /generate` in mode target: as one reply, and as a stream."""

import json
from dataclasses import replace
from typing import Any

import pytest

from backends.scripted import ScriptedBackend
from specpair.speculation.sampling.sampling import Sampling
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import PROMPT, PROMPT_IDS, Gated, events, until
from verifier_server.api import streams


def without_times(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary without the fields that differ between two requests for the same text."""
    assert summary["timing"].keys() == {"queue_ms", "forward_ms", "sessions", "tokens"}
    assert len(summary["session_id"]) == 32
    return {**summary, "timing": None, "session_id": None}


BODIES = [
    {"prompt": PROMPT, "max_tokens": 30, "seed": 1},
    {"prompt_ids": PROMPT_IDS, "max_tokens": 30, "seed": 3, "temperature": 1.0, "top_k": 50, "top_p": 0.9},
    {"prompt": PROMPT, "max_tokens": 1, "seed": 2},
]


@pytest.mark.parametrize("body", BODIES, ids=["greedy", "sampled", "one token"])
def test_stream_and_reply_have_the_same_text(server: LiveServer, body: dict[str, Any]) -> None:
    reply = server.post("/generate", body)
    sampling = Sampling(body["seed"], body.get("temperature", 0.0), body.get("top_k", 0), body.get("top_p", 1.0))
    expected = plain(SCRIPT, PROMPT_IDS, body["max_tokens"], sampling)
    assert reply["token_ids"] == expected
    assert (reply["prompt_tokens"], reply["generated_tokens"]) == (len(PROMPT_IDS), len(expected))
    assert (reply["finish_reason"], reply["model"]) == ("length", "scripted-2")
    assert reply["sampling"]["seed"] == body["seed"]
    *parts, (last, summary) = events(server, body)
    assert last == "end"
    assert without_times(summary) == without_times(reply)
    assert {name for name, _ in parts} == {"tokens"}
    assert [token for _, part in parts for token in part["tokens"]] == expected
    assert [part["position"] for _, part in parts] == [len(PROMPT_IDS) + at for at in range(len(expected))]
    assert "".join(part["text"] for _, part in parts) == reply["text"]


def test_text_that_fills_the_context_ends_before_max_tokens(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT, context_length=20))
    reply = live.post("/generate", {"prompt_ids": [256, 1, 2], "max_tokens": 1000})
    assert (reply["generated_tokens"], reply["finish_reason"]) == (17, "length")
    schemas = live.http.get("/openapi.json").json()["components"]["schemas"]
    for name in ("PrefillRequest", "GenerateRequest"):
        assert "context is full" in schemas[name]["properties"]["max_tokens"]["description"]


def test_silent_stream_sends_comments(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT", 0.01)
    backend = Gated()
    live = serve(backend)
    backend.close_gate()
    with live.client() as client, client.stream("POST", "/generate", json={**BODIES[0], "stream": True}) as response:
        lines = response.iter_lines()
        opened = [next(lines) for _ in range(3)]
        assert opened[0] == "event: open"
        assert [next(lines) for _ in range(6)] == [f": prompt 0/{len(PROMPT_IDS)}", ""] * 3
        backend.gate.set()
        assert json.loads(list(lines)[-2].removeprefix("data: "))["generated_tokens"] == 30


def test_closing_a_stream_stops_decoding_and_keeps_the_session(serve: Serve) -> None:
    # The context is longer than any test; the passes leave the event loop time, as those of a real model do.
    script = replace(SCRIPT, seconds_per_pass=0.001)
    backend = ScriptedBackend(script, slots=1, context_length=1_000_000, max_batch_tokens=64)
    live = serve(backend, keep_tokens=0)
    with live.client() as client, client.stream("POST", "/generate", json={"prompt": "x", "stream": True}) as response:
        lines = response.iter_lines()
        assert "event: tokens" in [next(lines) for _ in range(30)]
        assert [session.lease.requests for session in live.service.sessions.all()] == [1], "the session is in use"
    until(lambda: live.service.texts.under_way == 0)
    assert len(live.service.sessions.all()) == 1, "its client may go on with it"
    passes = backend.passes
    assert passes < 100_000
    live.post("/prefill", {"prompt": "x"})
    assert backend.passes == passes + 1, "no other request is running"
