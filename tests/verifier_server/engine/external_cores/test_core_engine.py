"""Engines over a core that decodes by itself: drafts, self-continuation, the core's absence and its end."""

import importlib.util
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.engines.errors import ModelLoadError
from specpair.speculation.acceptance.token_sources import split
from specpair.speculation.sampling.distribution import token_logprobs
from specpair.speculation.sampling.sampling import Sampling
from tests.verifier_server.conftest import SCRIPT
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.engine.external_cores.live import START, TEXT, InProcess, Live, in_process, over_sglang
from tests.verifier_server.support import LENGTH, PROMPT_IDS, drafting_client, read_events, tokens_of, until
from verifier_server.engine.choice import load_target
from verifier_server.engine.sequence_state import LEAD, SequenceState
from verifier_server.settings import Settings


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    with in_process(monkeypatch) as running:
        yield running


@pytest.fixture(params=["in_process", "sglang"])
def live(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Live]:
    with in_process(monkeypatch) if request.param == "in_process" else over_sglang(monkeypatch, tmp_path) as running:
        yield running


def test_drafts_are_judged_and_a_text_without_one_is_held(live: Live) -> None:
    text: list[int] = live.post("/prefill", {"prompt_ids": PROMPT_IDS})["tokens"]
    reply = live.verify(text, TEXT[1:5])
    assert (reply["accepted_prefix_len"], reply["judged"], reply["sources"]) == (4, 4, "aaaab")
    reply = live.verify(text, [TEXT[6], TEXT[7] ^ 1, 3])
    assert (reply["accepted_prefix_len"], reply["judged"], reply["sources"]) == (1, 3, "arx")
    reply = live.verify(text, [])
    assert (reply["accepted_prefix_len"], reply["judged"], reply["sources"]) == (0, 0, "b")
    assert text == TEXT[: len(text)]
    assert (live.core.passes, live.core.judged) == (4, 7)


def test_of_a_tree_the_likeliest_chain_of_what_is_left_is_judged(live: Live) -> None:
    assert "trees" not in live.http.get("/model").json()
    live.post("/prefill", {"prompt_ids": PROMPT_IDS})
    wrong = TEXT[1] ^ 1
    tree = {"draft_tokens": [TEXT[1], wrong, TEXT[2], TEXT[3]], "draft_parents": [1, 2, 2, 1]}
    reply = live.post("/verify", {"position": START + 1, **tree})
    assert (reply["tokens"], reply["accepted_path"], reply["judged"]) == (TEXT[1:5], [0, 2, 3], 3)
    late = {"draft_tokens": [wrong, *TEXT[1:6], 3], "draft_parents": [1, 2, 1, 1, 1, 1, 2]}
    reply = live.post("/verify", {"position": START + 1, **late})
    assert (reply["tokens"], reply["accepted_path"], reply["judged"]) == (TEXT[1:7], [1, 2, 3, 4, 5], 1)
    assert live.post("/verify", {"position": START + 1, **late})["judged"] == 0


def test_committed_tokens_answer_without_a_step(live: Live) -> None:
    text: list[int] = live.post("/prefill", {"prompt_ids": PROMPT_IDS})["tokens"]
    live.verify(text, TEXT[1:5])
    steps = live.core.passes
    for late in ([TEXT[1], TEXT[2] ^ 1], TEXT[1:4]):
        reply = live.post("/verify", {"position": START + 1, "draft_tokens": late})
        assert reply["tokens"] == TEXT[1:6] and reply["judged"] == 0
    assert live.core.passes == steps
    error = live.http.post("/verify", json={"position": START + 60, "draft_tokens": []})
    assert (error.status_code, error.json()["error"]["total_tokens"]) == (409, START + 6)
    assert live.http.post("/verify", json={"position": START + 6, "draft_tokens": [1] * 9}).status_code == 422


def test_whole_texts_and_drafted_ones_are_the_model_s(live: Live) -> None:
    temperature = 0.8 if live.draws else 0.0
    body = {"prompt_ids": PROMPT_IDS, "max_tokens": LENGTH, "temperature": temperature, "seed": 3}
    expected = plain(Script(seed=2), PROMPT_IDS, LENGTH, Sampling(3, temperature))
    assert live.post("/generate", body)["token_ids"] == expected
    numbers = range(1, 9) if live.draws else range(0, 16, 2)  # those of odd numbers draw
    with ThreadPoolExecutor(8) as pool:
        for text, expected in pool.map(lambda number: drafting_client(live, number), numbers):
            assert text == expected
    live.service.engine.check_integrity()


def test_batches_streams_and_predictions_are_served(live: Live) -> None:
    prompts = {name: [256, 5 + number] for number, name in enumerate("abc")}
    texts = {name: plain(Script(seed=2), ids, 12) for name, ids in prompts.items()}
    for name, ids in prompts.items():
        live.post("/prefill", {"session_id": name, "prompt_ids": ids, "max_tokens": 12})
    items = [{"session_id": name, "position": 3, "draft_tokens": texts[name][1:4]} for name in prompts]
    results = live.post("/verify/batch", {"items": items})["results"]
    assert [each["tokens"] for each in results] == [text[1:5] for text in texts.values()]
    with live.client() as http, http.stream("GET", "/sessions/a/stream?from=3") as stream:
        live.post("/verify", {"session_id": "a", "position": 3, "draft_tokens": texts["a"][1:8]})
        live.post("/verify", {"session_id": "a", "position": 3, "draft_tokens": texts["a"][1:]})
        *parts, last = read_events(stream)
    assert tokens_of(parts, 3) == texts["a"][1:] and last[0] == "end"
    body = {"prompt_ids": PROMPT_IDS, "mode": "fused", "max_tokens": 30}
    reply = live.post("/generate", {**body, "prediction_ids": [*TEXT[:12], 7, *TEXT[12:30]]})
    assert reply["token_ids"] == TEXT[:30]


def test_self_continuation_runs_ahead_a_bounded_way_and_takes_late_drafts(live: Live) -> None:
    opened = live.post("/prefill", {"prompt_ids": PROMPT_IDS, "self_continue": True})
    text, session_id = opened["tokens"], opened["session_id"]
    session = live.service.sessions.all()[0]
    until(lambda: len(session.tokens) == START + LEAD)
    reply = live.verify(text, TEXT[1 : LEAD + 2], session_id=session_id)
    assert reply["tokens"][:LEAD] == TEXT[1 : LEAD + 1] and reply["accepted_prefix_len"] >= LEAD
    assert {*split("bta")} <= {*session.details.sources}
    live.verify(text, [], self_continue=False, session_id=session_id)
    steps = live.core.passes
    until(lambda: live.service.engine.state.waiting == 0)
    assert live.core.passes == steps
    assert session.tokens[START:] == TEXT[: len(session.tokens) - START]


def test_forgotten_text_is_begun_anew_by_its_next_request(live: Live) -> None:
    with live.client(headers={"X-Session-Id": "session-one"}) as http:
        body = {"prompt_ids": PROMPT_IDS, "seed": 1, "max_tokens": 50}
        text = http.post("/prefill", json=body).json()["tokens"]
        http.delete("/sessions/session-one")
        until(lambda: live.service.engine.state.slots_in_use == 0)
        reply = http.post("/prefill", json=body | {"committed_ids": text}).json()
        assert text + reply["tokens"] == TEXT[:2]
    assert live.core.passes == 2 and len(live.core.salts) == 1


def test_client_that_leaves_stops_its_text(live: Live) -> None:
    with live.client() as http, http.stream("POST", "/generate", json={"prompt_ids": PROMPT_IDS, "stream": True}) as it:
        next(it.iter_lines())
    until(live.core.is_idle)


def test_what_the_engine_lacks_is_refused_with_the_reason(in_this_process: Live) -> None:
    live = in_this_process
    model = live.http.get("/model").json()
    assert model["strategies"] == ["coupled", "deterministic", "greedy", "threshold"]
    error = live.http.post("/prefill", json={"prompt_ids": PROMPT_IDS, "explain": True})
    assert (error.status_code, error.json()["error"]["param"]) == (422, "explain")
    assert error.json()["error"]["message"] == f"explain: {model['refused']['explain']}"
    error = live.http.post("/prefill", json={"prompt_ids": PROMPT_IDS, "strategy": "probabilistic"})
    assert (error.status_code, error.json()["error"]["param"]) == (422, "strategy")


def test_core_that_is_away_is_waited_for_and_sessions_go_on(live: Live) -> None:
    text: list[int] = live.post("/prefill", {"prompt_ids": PROMPT_IDS})["tokens"]
    live.core.leave()
    until(lambda: live.http.get("/ready").status_code == 503)
    health = live.http.get("/health")
    assert health.status_code == 503
    away = health.json()["reason"]
    assert (health.json()["status"] == "loading" and "away" in away) or "does not answer" in away
    error = live.http.post("/verify", json={"position": START + 1, "draft_tokens": []})
    assert (error.status_code, error.json()["error"]["code"]) == (503, "model_loading")
    assert error.json()["error"]["message"] == f"{away}: ask again when it is back"
    live.core.come_back()
    until(lambda: live.http.get("/ready").status_code == 200)
    live.verify(text, TEXT[1:5])
    assert text == TEXT[:6]
    live.service.engine.check_integrity()


def test_log_probabilities_are_told_of_every_token(in_this_process: Live) -> None:
    live = in_this_process
    opened = live.post("/prefill", {"prompt_ids": PROMPT_IDS, "logprobs": 2})
    text, told = list(opened["tokens"]), list(opened["logprobs"])
    for draft in (TEXT[1:4], [TEXT[5], TEXT[6] ^ 1]):
        told += live.verify(text, draft)["logprobs"]
    backend = ScriptedBackend(SCRIPT)
    rows = [backend.logits_after([*PROMPT_IDS, *text[:at]]) for at in range(len(text))]
    assert [(each["token"], each["logprob"], each["top"]) for each in told] == [
        (token, logprobs.logprob, [list(pair) for pair in logprobs.top])
        for token, row in zip(text, rows, strict=True)
        for logprobs in [token_logprobs(row, token, 2)]
    ]


def test_lost_core_is_a_typed_error_and_bad_health(in_this_process: Live) -> None:
    live, watched = in_this_process, in_this_process.core
    assert isinstance(watched, InProcess)
    live.post("/prefill", {"prompt_ids": PROMPT_IDS})
    watched.do(watched.core.gate.clear)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(live.http.post, "/verify", json={"position": START + 1, "draft_tokens": []})
        until(lambda: bool(live.service.engine.state.running))
        assert live.service.works(60.0) and not live.service.works(0.0), "a request waits"
        watched.do(watched.core.die)
        watched.do(watched.core.gate.set)
        assert (waiting.result().status_code, waiting.result().json()["error"]["code"]) == (500, "engine_error")
    assert live.http.get("/health").json()["status"] == "failed"
    error = live.http.post("/prefill", json={"prompt_ids": PROMPT_IDS})
    assert error.json()["error"]["message"] == "the core has ended: restart it"
    assert live.failed.wait(10) and live.service.works(0.0)


def test_bug_in_the_engine_ends_it(in_this_process: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(_: object, unread: int) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(SequenceState, "may_continue", bug)
    for _ in range(2):
        error = in_this_process.http.post("/prefill", json={"prompt_ids": PROMPT_IDS, "self_continue": True})
        assert error.json()["error"]["message"].startswith("the engine died: RuntimeError: a bug")
    assert in_this_process.failed.wait(10)


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_error_names_the_missing_package() -> None:
    with pytest.raises(ModelLoadError, match=r"the vllm engine needs vllm, .*vllm"):
        load_target(Settings(backend="vllm"), None, lambda _share: None, lambda: None)
