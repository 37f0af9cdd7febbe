"""What drafter serve tells as it happens: events, metrics, lines of its log."""

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from backends.scripted import Script, ScriptedBackend
from drafter_client import Custom, DraftModel, Mode, Options, Outage, Pair
from drafter_client.display.progress import verifier_loading
from drafter_client.generation.events import Resumed
from drafter_client.serve.app import create_app
from drafter_client.serve.live import Feed
from drafter_client.serve.messages import PairRound, PairState, TextCounts, TextEnded
from drafter_client.serve.metrics import DrafterMetrics, Observers
from drafter_client.statistics import Stats
from specpair.http_service.observability.logs import JsonFormatter
from specpair.http_service.observability.metrics import ServiceMetrics
from tests.drafter_client.cli.command_line import Terminal
from tests.drafter_client.support import Verifier, plain, running, serving, toy_drafter
from tests.gateway.openai_api.conftest import served
from tests.terminal.screen import Screen
from verifier_server.settings import Settings

MODELS: dict[str, type[BaseModel]] = {
    "state": PairState,
    "round": PairRound,
    "counts": TextCounts,
    "ended": TextEnded,
}


def _told(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """The events of a stream."""
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, MODELS[name].model_validate(json.loads(line[6:]))


def test_a_text_is_told_as_it_is_written() -> None:
    feed = Feed()
    with serving() as verifier:
        pair = Pair(verifier.url, DraftModel(Path("1"), "scripted"), texts=2, observer=Observers(feed))
        app = create_app(pair, Options(draft_n=4, lockstep=True), texts=2, queue=8, feed=feed)
        with served(app) as url, httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
            with http.stream("GET", "/events") as stream:
                told = _told(stream.iter_lines())
                name, state = next(told)
                assert (name, state.status, state.texts, state.waiting) == ("state", "ready", 0, 0)
                body = {"prompt": "def f(x):", "max_tokens": 20, "seed": 1}
                reply = http.post("/v1/completions", json=body).json()
                seen: list[tuple[str, Any]] = []
                while not seen or seen[-1][0] != "ended":
                    seen.append(next(told))
            rounds = [data for name, data in seen if name == "round"]
            counts = [data for name, data in seen if name == "counts"]
            assert len(rounds) == counts[-1].rounds > 0
            assert all(each.sent_ms <= each.arrived_ms and each.schedule == "lockstep" for each in rounds)
            assert sum(each.judged for each in rounds) == counts[-1].drafted == reply["timings"]["draft_n"]
            assert counts[-1].accepted == reply["timings"]["draft_n_accepted"]
            assert (counts[-1].generated, counts[-1].mode) == (20, "remote")
            assert seen[-1][1].finish_reason == "length"


def test_nothing_is_made_while_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed()
    monkeypatch.setattr(feed, "tell", lambda *_: pytest.fail("something was told"))
    with serving() as verifier, Pair(verifier.url, DraftModel(Path("1"), "scripted"), observer=feed) as pair:
        assert isinstance(pair.generate("def f(x):", Options(max_tokens=8)).read().stats, Stats)


SOURCE = Custom(lambda vocabulary, sampling: toy_drafter(sampling=sampling))


def value(metrics: ServiceMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"specpair_{name}", {"model_name": "m", **labels})


@pytest.mark.parametrize("mode", [Mode.REMOTE, Mode.FUSED, Mode.TARGET])
def test_texts_are_counted_as_in_their_statistics(mode: Mode) -> None:
    metrics = ServiceMetrics(lambda: "m")
    drafter = DrafterMetrics(metrics)
    settings = Settings(backend="scripted", draft_backend="ngram")
    with (
        running(settings, ScriptedBackend(Script(seed=1))) as verifier,
        Pair(verifier.url, SOURCE, observer=drafter, on_outage=drafter.outage) as pair,
    ):
        generation = pair.generate(
            "def f(x): def f(x): def f(", Options(max_tokens=40, mode=mode, lockstep=mode is Mode.REMOTE)
        )
        next(generation)
        assert value(metrics, "num_requests_running") == 1
        for _ in generation:
            pass
        stats = generation.stats
    assert value(metrics, "num_requests_running") == 0
    assert value(metrics, "generation_tokens_total") == stats.generated_tokens == 40
    assert value(metrics, "prompt_tokens_total") == stats.prompt_tokens
    assert value(metrics, "spec_decode_num_draft_tokens_total") == stats.drafted
    assert value(metrics, "spec_decode_num_accepted_tokens_total") == stats.accepted
    assert value(metrics, "time_to_first_token_seconds_sum") == pytest.approx(stats.ttft)
    assert value(metrics, "e2e_request_latency_seconds_sum") == pytest.approx(stats.total_time)
    assert value(metrics, "request_success_total", finished_reason="length") == 1
    assert value(metrics, "mode_selections_total", mode=mode) == 1
    if mode is Mode.REMOTE:
        assert value(metrics, "round_trip_seconds_count") == stats.drafts_sent
        assert stats.drafted > stats.accepted > 0


def test_outages_are_counted() -> None:
    metrics = ServiceMetrics(lambda: "m")
    drafter = DrafterMetrics(metrics)
    drafter.outage(Outage(2.5, 300.0, "nothing answers"))
    assert value(metrics, "outage_seconds") == 2.5
    with drafter.run(Stats(), {}) as tell:
        tell(Resumed(3), 1.0)
    drafter.outage(Outage(3.0, 300.0, "nothing answers", over=True))
    assert value(metrics, "outage_seconds") == 0 and value(metrics, "outages_total") == 1


PROMPT = "def f(x):"


def test_each_text_has_one_line(verifier: Verifier, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ids = plain(ScriptedBackend(Script(seed=1)), [256, *PROMPT.encode()], 24)
    at = next(at for at in range(8, 24) if ids[at] < 128 and ids[at] not in ids[:at])
    pair = Pair(verifier.url, DraftModel(Path("1"), "scripted"))
    body = {"prompt": PROMPT, "temperature": 0, "max_tokens": 24}
    with served(create_app(pair, Options(mode=Mode.REMOTE), 1, 2)) as url:
        for more in ({}, {"stop": chr(ids[at])}, {"stream": True}):
            reply = httpx.post(f"{url}/v1/completions", json=body | more, trust_env=False, timeout=20)
            assert reply.status_code == 200
    lines = [json.loads(JsonFormatter().format(each)) for each in caplog.records if each.name == "specpair.texts"]
    ours = [line for line in lines if "session_id" not in line]  # the verifier in this process logs the same texts
    told = sorted((line["mode"], line["ended_by"], line["prompt_tokens"]) for line in ours)
    assert told == [("remote", "length", 10)] * 2 + [("remote", "stop_string", 10)]
    assert [line["generated_tokens"] for line in ours if line["ended_by"] == "length"] == [24, 24]
    assert all(line["tokens_per_second"] > 0 and 0 <= (line["acceptance_rate"] or 0) <= 1 for line in ours)


def test_the_line_of_a_failed_text_has_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with serving() as verifier:
        pair = Pair(verifier.url, DraftModel(Path("1"), "scripted"), patience=0.0)
    with served(create_app(pair, Options(mode=Mode.TARGET), 1, 2)) as url:
        reply = httpx.post(f"{url}/v1/completions", json={"prompt": PROMPT}, trust_env=False, timeout=20)
    assert reply.status_code == 503
    reason = reply.json()["error"]["message"]
    (record,) = (each for each in caplog.records if each.name == "specpair.texts")
    line = json.loads(JsonFormatter().format(record))
    assert (line["ended_by"], line["reason"]) == ("error", reason) and verifier.url in reason
    assert record.getMessage().endswith(f"ended by error: {reason}")


@pytest.mark.parametrize("on_terminal", [False, True])
def test_the_progress_of_loading_is_one_row_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], on_terminal: bool
) -> None:
    screen, terminal = Screen(60), Terminal()
    if on_terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
    with verifier_loading() as loading:
        for progress in (None, 0.4, 0.9):
            loading(progress)
        during = terminal.getvalue()
    lines = [f"drafter: the verifier is loading its model … {percent}%" for percent in (0, 40, 90)]
    if on_terminal:
        screen.feed(during)
        assert screen.lines == lines[-1:]
        screen.feed(terminal.getvalue()[len(during) :] + "next")
        assert screen.lines == ["next"]
    else:
        assert capsys.readouterr().err.splitlines() == lines
