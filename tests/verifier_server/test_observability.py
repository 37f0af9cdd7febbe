"""What a verifier tells of itself: metrics, a log line for each text, and no secret."""

import json
import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from backends.scripted import ScriptedBackend
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import EngineFailure
from specpair.http_service.observability import logs
from specpair.http_service.observability.logs import JsonFormatter
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import Gated, metric, samples

IDS = [256, 1, 2]
TEXT = plain(SCRIPT, IDS, 8)


def open_text(live: LiveServer, name: str, **more: Any) -> None:
    live.post("/prefill", {"session_id": name, "prompt_ids": IDS, "max_tokens": 8, **more})


def verify(live: LiveServer, name: str, position: int, drafts: list[int]) -> None:
    live.post("/verify", {"session_id": name, "position": position, "draft_tokens": drafts})


def test_a_drafted_text_is_counted(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT, slots=2))
    open_text(live, "a")
    verify(live, "a", 4, [*TEXT[1:3], (TEXT[3] + 1) % 256, 0])  # two of four are accepted
    assert metric(live, "kv_cache_usage_perc") == pytest.approx(6 / (2 * live.service.engine.info.context_length))
    verify(live, "a", 7, TEXT[4:7])  # all three, and a bonus token ends the text
    verify(live, "a", 7, TEXT[4:7])  # answered from the record
    expected = {
        "prompt_tokens_total": 3,
        "generation_tokens_total": 8,
        "prefill_tokens_total": 2,
        "spec_decode_num_drafts_total": 2,
        "spec_decode_num_draft_tokens_total": 7,
        "spec_decode_num_accepted_tokens_total": 5,
        "time_to_first_token_seconds_count": 1,
        "inter_token_latency_seconds_count": 2,
        "e2e_request_latency_seconds_count": 1,
        "request_queue_time_seconds_count": 3,
        "pass_duration_seconds_count": 3,
        "pass_sessions_sum": 3,
        "iteration_tokens_total_sum": 3 + 5 + 4,
        "target_decoded_tokens_total": 0,
        "kv_slots": 2,
        "kv_slots_in_use": 0,
        "sessions": 1,
        "sessions_in_use": 0,
        "num_requests_waiting": 0,
        "num_requests_running": 0,
    }
    assert {name: metric(live, name, model_name="scripted-2") for name in expected} == expected
    assert metric(live, "request_success_total", finished_reason="length") == 1
    by_position = [metric(live, "spec_decode_num_accepted_tokens_per_pos_total", position=str(p)) for p in range(3)]
    assert by_position == [2, 2, 1]
    assert metric(live, "http_requests_total", route="/verify", status="200") == 3
    assert metric(live, "status", status="ready") == 1 and metric(live, "status", status="failed") == 0


def test_texts_that_the_verifier_generates_are_counted(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), draft=ScriptedBackend(SCRIPT))
    for mode in ("target", "fused"):
        live.post(
            "/generate", {"prompt_ids": IDS, "max_tokens": 8, "mode": mode, "draft_n": 3 if mode == "fused" else None}
        )
    assert metric(live, "request_success_total", finished_reason="length") == 2
    assert metric(live, "generation_tokens_total") == 16 and metric(live, "time_to_first_token_seconds_count") == 2
    drafted = metric(live, "spec_decode_num_draft_tokens_total")
    assert drafted == metric(live, "spec_decode_num_accepted_tokens_total") > 0, "both models are the same"


def test_target_decoded_tokens_are_counted(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT))
    open_text(live, "a", self_continue=True)
    assert "event: end" in live.http.get("/sessions/a/stream").text
    assert metric(live, "target_decoded_tokens_total") == 7 and metric(live, "generation_tokens_total") == 8


def test_requests_that_wait_and_run_are_counted(serve: Serve) -> None:
    backend = Gated()
    live = serve(backend)
    backend.close_gate()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(open_text, live, "a")
        try:
            assert backend.entered.wait(20)
            with live.client() as http:
                found = {name: metric for name, _, metric in samples(http.get("/metrics"))}
        finally:
            backend.gate.set()
        waiting.result(20)
    assert (found["num_requests_running"], found["num_requests_waiting"], found["sessions_in_use"]) == (1, 0, 1)


def test_metrics_need_the_key_unless_they_are_open(serve: Serve) -> None:
    closed = serve(ScriptedBackend(SCRIPT), api_key="s3cret", wait=False)
    assert closed.http.get("/metrics").status_code == 401
    keyed = closed.http.get("/metrics", headers={"Authorization": "Bearer s3cret"})
    assert keyed.status_code == 200 and "s3cret" not in keyed.text
    opened = serve(ScriptedBackend(SCRIPT), api_key="s3cret", metrics_open=True, wait=False)
    assert opened.http.get("/metrics").status_code == 200
    assert opened.http.get("/sessions").status_code == 401


def test_keys_are_counted_apart_by_name(serve: Serve) -> None:
    live = serve(ScriptedBackend(SCRIPT), api_key="s3cret", metrics_by_key=True, wait=False)
    live.http.headers["Authorization"] = "Bearer s3cret"
    live.wait_until_ready()
    open_text(live, "a")
    assert metric(live, "generation_tokens_total", key="default") == 1
    assert metric(live, "http_requests_total", route="/prefill", key="default") == 1


PROMPT = "def f(x):"
IDS_TEXT_LOG = [256, *PROMPT.encode()]


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
    text = plain(SCRIPT, IDS_TEXT_LOG, 24)
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
    assert told[4] == ("remote", "interrupt", 1, None)
    assert [each["session_id"] for each in body[:3]] == ["alone", "fused", "drafts"]
    assert all(each["prompt_tokens"] == len(IDS_TEXT_LOG) and each["tokens_per_second"] > 0 for each in body)
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


KEY, MARKED_PROMPT = "k3y-Zxqv", "pr0mpt-Zxqv"
MARKED = "Zxqv"


class Failing(ScriptedBackend):
    """A backend whose next pass fails with `fault`, if set."""

    fault: Exception | None = None

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        return super()._forward(batch)


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_marked_prompt_and_key_are_nowhere(
    serve: Serve, caplog: pytest.LogCaptureFixture, log_format: logs.LogFormat
) -> None:
    caplog.set_level(logging.DEBUG)
    backend = Failing(SCRIPT)
    live = serve(backend, draft=ScriptedBackend(SCRIPT), api_key=KEY, access_log=True, metrics_by_key=True, wait=False)
    live.http.headers["Authorization"] = f"Bearer {KEY}"
    live.wait_until_ready()
    told = []
    body = {"session_id": "a", "prompt": MARKED_PROMPT, "max_tokens": 20}
    told.append(live.http.post("/prefill", json={**body, "prompt": MARKED_PROMPT * 2000}))  # too long
    opened = live.post("/prefill", body)
    text = plain(SCRIPT, opened["prompt_ids"], 12)
    live.post("/verify", {"session_id": "a", "position": opened["total_tokens"], "draft_tokens": text[1:5]})
    told.append(live.http.post("/prefill", json={**body, "max_tokens": 21}))  # another text under the same id
    told.append(live.http.post("/prefill", json={**body, "prompt": [MARKED_PROMPT]}))
    told.append(live.http.post("/prefill", content=f'{{"prompt": "{MARKED_PROMPT}'))
    told.append(live.http.post("/generate", json={"prompt": MARKED_PROMPT, "mode": MARKED_PROMPT}))
    told.append(live.http.get("/sessions", headers={"Authorization": f"Bearer {KEY}x"}))
    for mode in ("target", "fused"):
        live.post("/generate", {"prompt": MARKED_PROMPT, "max_tokens": 5, "mode": mode})
    backend.fault = EngineFailure("out of memory")
    told.append(live.http.post("/prefill", json={**body, "session_id": "b"}))
    backend.fault = RuntimeError("a bug")  # the engine dies, with a traceback
    told.append(live.http.post("/prefill", json={**body, "session_id": "c"}))
    metrics = live.http.get("/metrics").text
    formatter = logs.JsonFormatter() if log_format == "json" else logs.PlainFormatter()
    lines = [formatter.format(record) for record in caplog.records if not record.name.startswith("httpcore")]
    assert any("the engine died" in line for line in lines)
    assert any("a forward pass over 1 sessions failed" in line and "b" in line for line in lines)
    assert sum("/prefill" in line for line in lines) >= 5, "access lines"
    assert all(response.status_code >= 400 for response in told)
    ids = ", ".join(map(str, opened["prompt_ids"][1:])), ", ".join(map(str, text[:3]))
    for written in (*lines, metrics, *(response.text for response in told)):
        assert MARKED not in written
        assert all(each not in written for each in ids)
