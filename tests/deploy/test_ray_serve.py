"""Replicas on Ray Serve itself: sessions stay where they are, and texts outlive replicas, upgrades and scaling."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from drafter_client import DraftModel, Pair, Tokens
from tests.deploy.ray_serve import Cluster, cluster
from tests.deploy.routers import PROMPT, TEXTS, expected, options_of

pytestmark = [pytest.mark.engine("ray"), pytest.mark.filterwarnings("ignore")]  # Ray's libraries warn

SETTINGS = {"VERIFIER_BACKEND": "scripted", "VERIFIER_MODEL": "1"}
UPGRADED = {**SETTINGS, "VERIFIER_MAX_DRAFTS": "48"}  # of which drafters are told


@pytest.fixture(scope="module")
def ray() -> Iterator[Cluster]:
    with cluster() as running:
        running.deploy(3, **SETTINGS)
        running.wait_until_healthy(3)
        yield running


@pytest.fixture
def pair(ray: Cluster) -> Iterator[Pair]:
    with Pair(ray.url, DraftModel(Path("1"), "scripted"), texts=TEXTS) as pair:
        yield pair


def written(pair: Pair, number: int) -> tuple[list[int], list[int]]:
    """The tokens of a text, and where it was resumed."""
    text = pair.generate(PROMPT, options_of(number))
    tokens = [token.id for event in text if isinstance(event, Tokens) for token in event.tokens]
    return tokens, text.stats.resumed


@contextmanager
def texts_meanwhile(pair: Pair) -> Iterator[None]:
    """Have texts written, one after the other in `TEXTS` threads, until the block ends. Each is the target's own."""
    over, begun = threading.Event(), threading.Barrier(TEXTS + 1)

    def write(number: int) -> list[list[int]]:
        begun.wait(60)
        texts = [written(pair, number)[0]]
        while not over.is_set():
            texts.append(written(pair, number)[0])
        return texts

    with ThreadPoolExecutor(TEXTS) as threads:
        writing = [threads.submit(write, number) for number in range(TEXTS)]
        try:
            begun.wait(60)
            yield
        finally:
            over.set()
        for number, each in enumerate(writing):
            assert all(tokens == expected(number) for tokens in each.result(120))


def test_sessions_stay_where_they_are(ray: Cluster, pair: Pair) -> None:
    with ThreadPoolExecutor(TEXTS) as threads:
        texts: list[Future[tuple[list[int], list[int]]]] = [
            threads.submit(written, pair, number) for number in range(TEXTS)
        ]
        for number, each in enumerate(texts):
            assert each.result(120) == (expected(number), [])
    written_by_one = max(each["generated_tokens"] for told in ray.each("/usage") for each in told["keys"])
    assert written_by_one < sum(len(expected(number)) for number in range(TEXTS)), "several replicas wrote"
    assert {told["sessions"] for told in ray.each("/health")} == {0}, "DELETE finds its session, too"
    assert {told["status"] for told in ray.each("/ready")} == {"ready"}


def test_a_stream_passes_as_it_comes(ray: Cluster) -> None:
    session_id = "0" * 31 + "1"
    headers = {"X-Session-Id": session_id}
    with httpx.Client(base_url=ray.url, headers=headers, timeout=30, trust_env=False) as http:
        opened = http.post("/prefill", json={"prompt": PROMPT, "max_tokens": 8, "temperature": 0.0}).json()
        with http.stream("GET", f"/sessions/{session_id}/stream") as stream:
            lines = (line for line in stream.iter_lines() if line.startswith("data:"))
            assert str(opened["tokens"][0]) in next(lines)
            for _ in range(3):  # each comes while the stream stays open
                reply = http.post("/verify", json={"position": opened["total_tokens"], "draft_tokens": []}).json()
                assert f"[{reply['tokens'][-1]}]" in next(lines).replace(" ", "")
                opened = {"total_tokens": reply["total_tokens"]}
        assert http.delete(f"/sessions/{session_id}").status_code == 200


def test_texts_outlive_two_of_three_replicas(ray: Cluster, pair: Pair) -> None:
    with texts_meanwhile(pair):
        lost = ray.replicas[:2]
        assert len(lost) == 2
        for pid in lost:
            os.kill(pid, signal.SIGKILL)
        ray.wait_until_healthy(3, lambda: len({*ray.replicas} - {*lost}) == 3)


def test_texts_outlive_an_upgrade_and_other_numbers_of_replicas(ray: Cluster, pair: Pair) -> None:
    def upgraded() -> bool:
        return {told["max_draft_tokens"] for told in ray.each("/model")} == {48}

    with texts_meanwhile(pair):
        ray.deploy(3, **UPGRADED)
        ray.wait_until_healthy(3, upgraded)
        ray.deploy(1, **UPGRADED)
        ray.wait_until_healthy(1)
        ray.deploy(2, **UPGRADED)
        ray.wait_until_healthy(2)
