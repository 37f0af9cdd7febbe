"""`GET /events` and its feed: what is told of the texts of a pair, and what it costs without a reader."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from drafter_client import DraftModel, Options, Pair
from drafter_client.serve.app import create_app
from drafter_client.serve.live import Feed
from drafter_client.serve.messages import PairRound, PairState, TextCounts, TextEnded
from drafter_client.serve.metrics import Observers
from drafter_client.statistics import Stats
from tests.drafter_client.support import serving
from tests.gateway.openai_api.conftest import served

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


def test_a_pair_without_a_draft_model_tells_its_state() -> None:
    with serving() as verifier:
        app = create_app(Pair(verifier.url, None), Options(), texts=1, queue=1)
        with served(app) as url, httpx.stream("GET", f"{url}/events", trust_env=False, timeout=60) as stream:
            _, state = next(_told(stream.iter_lines()))
            assert (state.draft_model, state.target_alone) == ("", None)


def test_nothing_is_made_while_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed()
    monkeypatch.setattr(feed, "tell", lambda *_: pytest.fail("something was told"))
    with serving() as verifier, Pair(verifier.url, DraftModel(Path("1"), "scripted"), observer=feed) as pair:
        assert isinstance(pair.generate("def f(x):", Options(max_tokens=8)).read().stats, Stats)
