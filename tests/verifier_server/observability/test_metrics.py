"""What the verifier's metrics say after known requests, and who may read them."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from backends.scripted import ScriptedBackend
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
