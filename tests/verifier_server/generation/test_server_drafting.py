"""Server-side drafting (mode fused): the text is the target's, whatever the draft model is and whether it fails."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count, product
from queue import SimpleQueue
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.errors import BackendError, EngineFailure, EngineLost
from specpair.protocol.errors import ShuttingDown, SpecPairError
from specpair.speculation.sampling.distribution import probabilities
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.text_options import TextSpec
from tests.specpair.speculation import chi_square
from tests.verifier_server.conftest import SCRIPT, LiveServer, Serve, settings
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.support import (
    FILTERED,
    GREEDY,
    LENGTH,
    PROMPT_IDS,
    WARM,
    body_of,
    drafting_client,
    half_right,
    leave_behind,
    slots_free,
    until,
)
from verifier_server.engine.arrived_drafts import Answer
from verifier_server.engine.engine import Engine
from verifier_server.engine.scheduler import Scheduler
from verifier_server.generation.draft_model import SharedDraftModel
from verifier_server.generation.fused_text import DraftCounts
from verifier_server.generation.server_drafting import ServerDrafting
from verifier_server.sessions import Session

BY = pytest.mark.parametrize("draft_n", [3, None], ids=["alone", "in rounds"])
SAMPLINGS = pytest.mark.parametrize("sampling", [GREEDY, WARM, FILTERED], ids=["greedy", "warm", "filtered"])


@pytest.fixture(scope="module")
def fused() -> Iterator[LiveServer]:
    """A verifier with a draft model, both with two slots, for all tests of this file."""
    backend = ScriptedBackend(SCRIPT, slots=2, context_length=512, max_batch_tokens=128)
    live = LiveServer(settings(max_drafts=16), backend, draft=half_right())
    live.wait_until_ready()
    yield live
    live.close()


@SAMPLINGS
@pytest.mark.parametrize("draft_n", [None, 0, 1, 5])
def test_the_text_is_the_target_s(fused: LiveServer, sampling: Sampling, draft_n: int | None) -> None:
    reply = fused.post("/generate", body_of(sampling, draft_n=draft_n))
    assert reply["token_ids"] == plain(SCRIPT, PROMPT_IDS, LENGTH, sampling)
    target = fused.post("/generate", {**body_of(sampling), "mode": "target"})
    assert (reply["mode"], target["mode"]) == ("fused", "target")
    same = ("text", "token_ids", "prompt_tokens", "generated_tokens", "finish_reason", "model", "sampling")
    assert [reply[key] for key in same] == [target[key] for key in same]
    assert reply.keys() - target.keys() == {"draft_model", "speculation"}


@pytest.mark.parametrize("draft_n", [1, 5, 16])
def test_the_statistics_add_up(fused: LiveServer, draft_n: int) -> None:
    reply = fused.post("/generate", body_of(WARM, draft_n=draft_n))
    stats = reply["speculation"]
    assert reply["draft_model"] == "scripted-2"
    assert 1 + stats["rounds"] + stats["accepted"] == LENGTH, (
        "a token of the prefill, then one per pass, and the accepted ones"
    )
    assert 0 < stats["accepted"] < stats["drafted"] <= draft_n * stats["rounds"]
    assert stats["acceptance_rate"] == pytest.approx(stats["accepted"] / stats["drafted"], abs=1e-4)
    assert stats["mean_acceptance_length"] == pytest.approx(1 + stats["accepted"] / stats["rounds"], abs=1e-3)
    assert sum(stats["accepted_per_position"]) == stats["accepted"]
    assert stats["accepted_per_position"] == sorted(stats["accepted_per_position"], reverse=True)
    assert len(stats["accepted_per_position"]) <= draft_n
    assert 0 <= stats["looked_up_accepted"] <= stats["looked_up"] <= stats["drafted"]
    assert stats["drafting_ms"] > 0.0
    assert reply["timing"]["forward_ms"] > 0.0


def test_probabilistic_texts_are_exact_samples_of_the_target(serve: Serve) -> None:
    """The second and third token of 300 texts, drafted by a model that is independent of the target."""
    script, ids = Script(seed=2, sharpness=2.0, support=3), range(3)
    live = serve(ScriptedBackend(script), draft=ScriptedBackend(replace(script, agreement=0.0)))
    target = ScriptedBackend(script)

    def p(*before: int) -> list[float]:
        return probabilities(target.logits_after([*PROMPT_IDS, *before]), Sampling(0, 1.0)).tolist()

    found: Counter[tuple[int, int]] = Counter()
    for seed in range(300):
        asked = body_of(Sampling(seed, 1.0), strategy="probabilistic", draft_n=2)
        _, second, third = live.post("/generate", {**asked, "max_tokens": 3})["token_ids"]
        found[second, third] += 1
    pairs = list(product(ids, ids))
    expected = [sum(p()[first] * p(first)[b] * p(first, b)[c] for first in ids) for b, c in pairs]
    assert chi_square.fits_pooled([found[pair] for pair in pairs], expected)


def test_a_text_ends_at_an_end_token_and_at_the_context_length(serve: Serve) -> None:
    script = Script(seed=2, end_bias=9.0)
    live = serve(ScriptedBackend(script, context_length=64), draft=ScriptedBackend(script))
    body = {**body_of(GREEDY, draft_n=6), "max_tokens": None}
    reply = live.post("/generate", body)
    assert reply["token_ids"] == plain(script, PROMPT_IDS, 60, GREEDY)
    assert reply["finish_reason"] == "stop"
    live = serve(ScriptedBackend(SCRIPT, context_length=64), draft=ScriptedBackend(SCRIPT))
    reply = live.post("/generate", body)
    assert reply["token_ids"] == plain(SCRIPT, PROMPT_IDS, 64 - len(PROMPT_IDS), GREEDY)
    assert reply["finish_reason"] == "length"
    assert live.post("/generate", body_of(GREEDY, max_tokens=1))["token_ids"] == reply["token_ids"][:1]


def refused(live: LiveServer, **body: Any) -> tuple[int, str, str]:
    response = live.http.post("/generate", json={"prompt": "x", **body})
    error = response.json()["error"]
    return response.status_code, error["code"], error["message"]


def test_impossible_requests_are_refused_with_the_reason(fused: LiveServer, serve: Serve) -> None:
    status, code, message = refused(serve(), mode="fused")
    assert (status, code) == (422, "fused_unavailable")
    assert "VERIFIER_DRAFT_MODEL" in message and "VERIFIER_DRAFT_BACKEND=ngram" in message
    assert refused(fused, mode="target", draft_n=2)[1:] == (
        "invalid_request",
        "draft_n: nothing is drafted in mode target",
    )
    assert refused(fused, mode="fused", draft_n=17) == (
        422,
        "invalid_request",
        "draft_n: 17 is more than the 16 draft tokens that this verifier judges at once",
    )
    assert refused(fused, mode="fused", draft_n=-1)[:2] == (422, "invalid_request")
    assert refused(fused, mode="both")[:2] == (422, "invalid_request")
    assert refused(fused, mode="fused", prompt="", stream=True)[:2] == (422, "empty_prompt")


def test_texts_of_all_modes_run_at_the_same_time(serve: Serve) -> None:
    """More fused texts than slots of the draft model, more texts than slots of the target."""
    live = serve(ScriptedBackend(SCRIPT, slots=3, max_batch_tokens=64), draft=half_right(max_batch_tokens=32))

    def generate(number: int) -> tuple[list[int], list[int]]:
        sampling = Sampling(number, 0.8 * (number % 2))
        prompt = [256, *f"text {number}".encode()]
        expected = plain(SCRIPT, prompt, LENGTH, sampling)
        with live.client() as http:
            if number % 4 == 3:
                return drafting_client(live, number)
            mode = "target" if number % 4 == 2 else "fused"
            reply = http.post("/generate", json=body_of(sampling, prompt, mode=mode)).json()
        return reply["token_ids"], expected

    with ThreadPoolExecutor(12) as threads:
        for generated, expected in threads.map(generate, range(12)):
            assert generated == expected
    live.service.engine.check_integrity()
    until(lambda: slots_free(live))
    assert live.service.texts.under_way == 0
    assert slots_free(live)


class Endless(ScriptedBackend):
    """Never runs out of context within a test; sets `released` when a slot was released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        super().__init__(SCRIPT, slots=2, context_length=1_000_000, max_batch_tokens=64)

    def _release(self, slot: int) -> None:
        super()._release(slot)
        self.released.set()


def endless(serve: Serve, draft: Backend | None = None, **given: Any) -> tuple[LiveServer, Endless]:
    """A verifier that drafts for one text at a time."""
    backend = Endless()
    live = serve(backend, draft=draft or half_right(slots=1), keep_tokens=0, **given)
    backend.released.clear()
    return live, backend


@BY
def test_disconnecting_from_a_stream_stops_it_and_starts_the_next_text(serve: Serve, draft_n: int | None) -> None:
    live, backend = endless(serve)
    body = body_of(WARM, draft_n=draft_n)
    with ThreadPoolExecutor(1) as thread, live.client() as client:
        forever = {**body, "max_tokens": None, "stream": True}
        with client.stream("POST", "/generate", json=forever) as response:
            lines = response.iter_lines()
            assert "event: tokens" in [next(lines) for _ in range(30)]
            waits = thread.submit(live.post, "/generate", body)
            until(lambda: live.service.texts.under_way == 2)
            assert not backend.released.is_set() and not waits.done()
        assert waits.result(20)["token_ids"] == plain(SCRIPT, PROMPT_IDS, LENGTH, WARM)
    assert backend.released.wait(20), "the slot was never released"
    until(lambda: slots_free(live))
    live.service.engine.check_integrity()
    passes = backend.passes
    live.post("/prefill", {"prompt": "x"})
    assert backend.passes == passes + 1, "no other text is running"


@BY
def test_a_text_whose_client_disconnects_while_it_waits_is_never_started(serve: Serve, draft_n: int | None) -> None:
    live, backend = endless(serve)
    forever = {**body_of(WARM, draft_n=draft_n), "max_tokens": None, "stream": True}
    with live.client() as client, client.stream("POST", "/generate", json=forever) as response:
        lines = response.iter_lines()
        next(lines)
        other = body_of(WARM, [256, 77])
        leave_behind(live, "/generate", other, lambda: live.service.texts.under_way == 2)
        until(lambda: live.service.texts.under_way == 1)
        next(lines)
    until(lambda: slots_free(live))
    assert live.post("/generate", body_of(WARM))["token_ids"] == plain(SCRIPT, PROMPT_IDS, LENGTH, WARM)
    assert [256, 77] not in [held[:2] for held in backend.held]


class Failing(ScriptedBackend):
    """A draft backend that fails in `times` passes from the sixth on, counted once `numbers` is set."""

    def __init__(self, error: Exception, times: int) -> None:
        super().__init__(Script(seed=SCRIPT.seed, agreement=0.6), slots=2)
        self._error, self._times = error, times
        self.numbers: Iterator[int] | None = None

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self.numbers is not None and 5 <= next(self.numbers) < 5 + self._times:
            raise self._error
        return super()._forward(batch)


@pytest.mark.parametrize(
    ("error", "times", "failure"),
    [(EngineLost("the device is gone"), 1_000_000, "the device is gone"), (EngineFailure("out of memory"), 1, None)],
    ids=["for good", "once"],
)
def test_a_text_is_continued_without_drafts_if_drafting_fails(
    serve: Serve, caplog: pytest.LogCaptureFixture, error: BackendError, times: int, failure: str | None
) -> None:
    engine = Failing(error, times)
    live = serve(ScriptedBackend(SCRIPT), draft=engine)
    engine.numbers = count()
    for attempt in range(2):
        reply = live.post("/generate", body_of(WARM, draft_n=2))
        assert reply["token_ids"] == plain(SCRIPT, PROMPT_IDS, LENGTH, WARM)
        stats = reply["speculation"]
        assert 1 + stats["rounds"] + stats["accepted"] == LENGTH
        if attempt == 0:
            assert 0 < stats["drafted"] <= 5
        else:
            assert (stats["drafted"] > 20) == (failure is None)
    assert f"drafting failed, the text continues without drafts: {error}" in caplog.text
    health = live.http.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "ready")
    assert health.json().get("draft_model_failure") == failure


def written_together(draft: Backend, counts: Sequence[DraftCounts], pass_times: Sequence[float]) -> None:
    """Write texts to their ends in rounds, one for each of `counts`. They are the target's."""
    engine = Engine(Scheduler(ScriptedBackend(SCRIPT), max_drafts=16, pass_times=pass_times))
    model = SharedDraftModel(draft, draft.slots, draft, time.perf_counter)
    if isinstance(draft, Failing):
        draft.numbers = count()
    fusion = ServerDrafting(model, pass_times, time.perf_counter, lambda: None)
    ended: SimpleQueue[Answer | SpecPairError] = SimpleQueue()
    texts = range(len(counts))
    sessions = [Session(str(number), [256, number], 2, TextSpec.of(WARM), 2 + LENGTH, ()) for number in texts]
    for session, counted in zip(sessions, counts, strict=True):
        fusion.start(engine, session, None, counted, 2, ended.put)
    engine.start()
    left = len(sessions)
    while left:
        answer = ended.get(timeout=20)
        assert isinstance(answer, Answer)
        left -= answer.finish_reason is not None
    engine.stop()
    fusion.stop()
    assert [each.tokens[2:] for each in sessions] == [plain(SCRIPT, [256, n], LENGTH, WARM) for n in texts]
    assert all(1 + each.rounds + each.accepted == LENGTH for each in counts)


@pytest.mark.parametrize("token", [0.0, 0.5, 2.0])
def test_texts_that_share_passes_are_the_target_s_whatever_a_draft_token_costs(token: float) -> None:
    """`token`: what a token adds to a pass, in passes. Where it costs much, shared passes leave draft tokens out."""
    counts = [DraftCounts() for _ in range(4)]
    written_together(half_right(slots=4), counts, [0.001 * (1.0 + token * more) for more in range(17)])


@pytest.mark.parametrize("error", [EngineFailure("out of memory"), RuntimeError("out of memory")])
def test_texts_written_together_go_on_without_drafts_if_drafting_fails(error: Exception) -> None:
    counts = [DraftCounts() for _ in range(2)]
    written_together(Failing(error, 1_000_000), counts, [1.0] * 17)
    assert [each.failure for each in counts] == ["out of memory"] * 2


@BY
def test_stopping_ends_running_and_waiting_texts(draft_n: int | None) -> None:
    engine = Engine(Scheduler(Endless(), max_drafts=16))
    engine.start()
    draft = half_right(slots=1)
    fusion = ServerDrafting(SharedDraftModel(draft, 1, draft, lambda: 0.0), [], lambda: 0.0, lambda: None)
    results: list[list[Answer | SpecPairError]] = [[], []]
    started, ended = threading.Event(), threading.Semaphore(0)

    def report(number: int, result: Answer | SpecPairError) -> None:
        results[number].append(result)
        started.set()
        if isinstance(result, SpecPairError):
            ended.release()

    for number in range(2):
        session = Session(str(number), [256, 1], 2, TextSpec.of(WARM), 1_000_000, ())
        fusion.start(engine, session, draft_n, DraftCounts(), 2, lambda result, number=number: report(number, result))  # type: ignore[misc]
    assert started.wait(20)
    engine.stop()
    fusion.stop()
    assert all(ended.acquire(timeout=20) for _ in results)
    assert isinstance(results[0][-1], ShuttingDown) and len(results[0]) > 1
    assert [type(result) for result in results[1]] == [ShuttingDown]
