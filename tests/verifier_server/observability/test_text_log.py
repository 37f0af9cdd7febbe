"""One log line for each text, with what it took and why it ended, whoever asked for it."""

import json
import logging
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from backends.scripted import ScriptedBackend
from specpair.http_service.observability.logs import JsonFormatter
from tests.verifier_server.conftest import SCRIPT, Serve
from tests.verifier_server.engine.bench import plain

PROMPT = "def f(x):"
IDS = [256, *PROMPT.encode()]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[int], list[logging.LogRecord]]:
    caplog.set_level(logging.INFO)

    def texts(count: int) -> list[logging.LogRecord]:
        found = [record for record in caplog.records if record.name == "specpair.texts"]
        assert len(found) == count, [record.getMessage() for record in found]
        return found

    return texts


def test_each_text_has_one_line_however_it_was_asked_for(
    serve: Serve, lines: Callable[[int], list[logging.LogRecord]]
) -> None:
    # a pass takes so long that no text of 400 tokens is written before its stop string is seen
    live = serve(ScriptedBackend(replace(SCRIPT, seconds_per_pass=0.01)), draft=ScriptedBackend(SCRIPT))
    text = plain(SCRIPT, IDS, 24)
    at = next(at for at in range(8, 24) if text[at] < 128 and text[at] not in text[:at])
    live.post("/generate", {"prompt": PROMPT, "max_tokens": 8, "session_id": "alone"})
    live.post("/generate", {"prompt": PROMPT, "max_tokens": 8, "mode": "fused", "draft_n": 3, "session_id": "fused"})
    opened = live.post("/prefill", {"prompt": PROMPT, "max_tokens": 6, "session_id": "drafts"})
    live.post("/verify", {"session_id": "drafts", "position": opened["total_tokens"], "draft_tokens": text[1:6]})
    live.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 400, "stop": chr(text[at]), "temperature": 0})
    live.post("/prefill", {"prompt": PROMPT, "max_tokens": 6, "session_id": "left"})
    live.http.delete("/sessions/left", headers={"X-Session-Id": "left"})
    live.http.delete("/sessions/drafts", headers={"X-Session-Id": "drafts"})
    live.close()  # all that the engine told is delivered
    body = [json.loads(JsonFormatter().format(record)) for record in lines(5)]
    told = [(each["mode"], each["ended_by"], each["generated_tokens"], each["acceptance_rate"]) for each in body]
    assert told[0] == ("target", "length", 8, None)
    assert told[1][:3] == ("fused", "length", 8) and told[1][3] == 1.0
    assert told[2] == ("remote", "length", 6, 1.0)
    assert told[3][:2] == ("fused", "stop_string") and told[3][2] > at
    assert told[4] == ("remote", "deletion", 1, None)
    assert [each["session_id"] for each in body[:3]] == ["alone", "fused", "drafts"]
    assert all(each["prompt_tokens"] == len(IDS) and each["tokens_per_second"] > 0 for each in body)
    message = re.sub(r"[\d.]+ tokens/s", "1.0 tokens/s", lines(5)[2].getMessage())
    assert message == "6 tokens, 1.0 tokens/s, acceptance rate 100.0%, mode remote, ended by length"


def test_the_model_has_the_name_that_the_operator_gave_it(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), alias="gpt-4o")
    assert live.http.get("/model").json()["model"] == live.http.get("/health").json()["model"] == "gpt-4o"
    assert [each["id"] for each in live.http.get("/v1/models").json()["data"]] == ["gpt-4o"]
    for path in ("/generate", "/prefill", "/v1/completions"):
        assert live.post(path, {"prompt": "a", "max_tokens": 1, "temperature": 0})["model"] == "gpt-4o"
    assert live.http.post("/v1/completions", json={"model": "scripted-2", "prompt": "a"}).status_code == 404
    assert 'model_name="gpt-4o"' in live.http.get("/metrics").text
