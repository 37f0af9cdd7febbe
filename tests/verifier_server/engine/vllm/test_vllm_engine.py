"""The engine over a core that commits tokens by itself, without vLLM: drafts, self-continuation, the core's end."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.engines.load_options import LoadOptions
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.sampling.sampling import Sampling
from tests.verifier_server.conftest import SCRIPT, LiveServer
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.engine.vllm.scripted_core import ScriptedCore
from tests.verifier_server.support import LENGTH, PROMPT_IDS, drafting_client
from verifier_server.engine.port import EngineInfo, LoadedEngine, Serving
from verifier_server.engine.sequence_state import LEAD
from verifier_server.engine.vllm import load as loading
from verifier_server.engine.vllm.engine import VllmEngine
from verifier_server.engine.vllm.loop_thread import LoopThread
from verifier_server.settings import Settings

TEXT = plain(Script(seed=2), PROMPT_IDS, 200)
START = len(PROMPT_IDS)


class Live(LiveServer):
    """A verifier over a scripted core, under a vLLM's name."""

    core: ScriptedCore
    loop: LoopThread

    def in_loop(self, call: Callable[[], object]) -> None:
        async def run() -> None:
            call()

        self.loop.result(run())

    def verify(self, text: list[int], draft: list[int], **fields: Any) -> Any:
        """Send a draft behind `text`, and append what is committed."""
        reply = self.post("/verify", {"position": START + len(text), "draft_tokens": draft, **fields})
        text += reply["tokens"]
        return reply

    def until(self, holds: Callable[[], bool]) -> None:
        until = time.monotonic() + 10
        while not holds():
            assert time.monotonic() < until, "it did not come to be"
            time.sleep(0.002)


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    backend, loop = ScriptedBackend(SCRIPT, context_length=512), LoopThread()

    async def make() -> ScriptedCore:
        return ScriptedCore(backend)

    core = loop.result(make())

    def load(options: LoadOptions, settings: Settings, progress: object) -> LoadedEngine:
        info = EngineInfo(
            "vllm", "scripted", backend.vocabulary, 4, 512, 8, 0, 0, None,
            strategies=tuple(each for each in Strategy if not each.draws),
            lacks=loading.LACKS,
        )  # fmt: skip

        def serve(serving: Serving) -> VllmEngine:
            engine = VllmEngine(core, loop, serving, [0.001], max_queue=settings.max_queue)
            engine.start()
            return engine

        return LoadedEngine(info, {}, None, [0.001, 0.001], serve, core.close)

    monkeypatch.setattr(loading, "load", load)
    server = Live(Settings(backend="vllm"), None)
    server.core, server.loop = core, loop
    server.wait_until_ready()
    yield server
    server.close()
    assert core.closed


def test_drafts_are_judged_and_a_text_without_one_is_held(live: Live) -> None:
    text: list[int] = live.post("/prefill", {"prompt_ids": PROMPT_IDS})["tokens"]
    reply = live.verify(text, TEXT[1:5])
    assert (reply["accepted_prefix_len"], reply["judged"], reply["sources"]) == (4, 4, "aaaab")
    reply = live.verify(text, [TEXT[6], TEXT[7] ^ 1, 3])
    assert (reply["accepted_prefix_len"], reply["judged"], reply["sources"]) == (1, 3, "arx")
    reply = live.verify(text, [])
    assert (reply["accepted_prefix_len"], reply["judged"], reply["sources"]) == (0, 0, "b")
    assert text == TEXT[: len(text)]
    assert (live.core.steps, live.core.judged) == (4, 7)


def test_committed_tokens_answer_without_a_step(live: Live) -> None:
    text: list[int] = live.post("/prefill", {"prompt_ids": PROMPT_IDS})["tokens"]
    live.verify(text, TEXT[1:5])
    steps = live.core.steps
    for late in ([TEXT[1], TEXT[2] ^ 1], TEXT[1:4]):
        reply = live.post("/verify", {"position": START + 1, "draft_tokens": late})
        assert reply["tokens"] == TEXT[1:6] and reply["judged"] == 0
    assert live.core.steps == steps
    error = live.http.post("/verify", json={"position": START + 60, "draft_tokens": []})
    assert (error.status_code, error.json()["error"]["total_tokens"]) == (409, START + 6)
    assert live.http.post("/verify", json={"position": START + 6, "draft_tokens": [1] * 9}).status_code == 422


def test_whole_texts_and_drafted_ones_are_the_model_s(live: Live) -> None:
    body = {"prompt_ids": PROMPT_IDS, "max_tokens": LENGTH, "temperature": 0.8, "seed": 3}
    assert live.post("/generate", body)["token_ids"] == plain(Script(seed=2), PROMPT_IDS, LENGTH, Sampling(3, 0.8))
    with ThreadPoolExecutor(8) as pool:
        for text, expected in pool.map(lambda number: drafting_client(live, number), range(1, 9)):
            assert text == expected
    live.service.engine.check_integrity()


def test_self_continuation_runs_ahead_a_bounded_way_and_takes_late_drafts(live: Live) -> None:
    opened = live.post("/prefill", {"prompt_ids": PROMPT_IDS, "self_continue": True})
    text, session_id = opened["tokens"], opened["session_id"]
    session = live.service.sessions.all()[0]
    live.until(lambda: len(session.tokens) == START + LEAD)
    reply = live.verify(text, TEXT[1 : LEAD + 2], session_id=session_id)
    assert reply["tokens"][:LEAD] == TEXT[1 : LEAD + 1] and reply["accepted_prefix_len"] >= LEAD
    assert set(session.details.sources) >= {"b", "t", "a"}
    live.verify(text, [], self_continue=False, session_id=session_id)
    steps = live.core.steps
    live.until(lambda: live.service.engine.state.waiting == 0)
    assert live.core.steps == steps
    assert session.tokens[START:] == TEXT[: len(session.tokens) - START]


def test_forgotten_text_is_begun_anew_by_its_next_request(live: Live) -> None:
    with live.client(headers={"X-Session-Id": "session-one"}) as http:
        body = {"prompt_ids": PROMPT_IDS, "seed": 1, "max_tokens": 50}
        text = http.post("/prefill", json=body).json()["tokens"]
        http.delete("/sessions/session-one")
        live.until(lambda: not live.core.texts)
        reply = http.post("/prefill", json=body | {"committed_ids": text}).json()
        assert text + reply["tokens"] == TEXT[:2]
    assert live.core.begun == 2 and len(set(live.core.salts)) == 1


def test_client_that_leaves_stops_its_text(live: Live) -> None:
    with live.client() as http, http.stream("POST", "/generate", json={"prompt_ids": PROMPT_IDS, "stream": True}) as it:
        next(it.iter_lines())
    live.until(lambda: not live.core.texts or not any(text.wish.free for text in live.core.texts.values()))


def test_what_the_engine_lacks_is_refused_with_the_reason(live: Live) -> None:
    model = live.http.get("/model").json()
    assert model["strategies"] == ["coupled", "deterministic", "greedy", "threshold"]
    for name, value in (("explain", True), ("logprobs", 1)):
        error = live.http.post("/prefill", json={"prompt_ids": PROMPT_IDS, name: value})
        assert (error.status_code, error.json()["error"]["param"]) == (422, name)
        assert error.json()["error"]["message"] == f"{name}: {model['refused'][name]}"
    error = live.http.post("/prefill", json={"prompt_ids": PROMPT_IDS, "strategy": "probabilistic"})
    assert (error.status_code, error.json()["error"]["param"]) == (422, "strategy")


def test_lost_core_is_a_typed_error_and_bad_health(live: Live) -> None:
    live.post("/prefill", {"prompt_ids": PROMPT_IDS})
    live.in_loop(live.core.gate.clear)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(live.http.post, "/verify", json={"position": START + 1, "draft_tokens": []})
        live.until(lambda: bool(live.service.engine.state.running))
        live.in_loop(live.core.die)
        live.in_loop(live.core.gate.set)
        assert (waiting.result().status_code, waiting.result().json()["error"]["code"]) == (500, "engine_error")
    assert live.http.get("/health").json()["status"] == "failed"
    error = live.http.post("/prefill", json={"prompt_ids": PROMPT_IDS})
    assert error.json()["error"]["message"] == "the core has ended: restart it"


def test_error_names_the_missing_package() -> None:
    from specpair.engines.errors import ModelLoadError

    try:
        import vllm  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(ModelLoadError, match=r"the vllm engine needs vllm, .*vllm"):
            loading.load(LoadOptions(), Settings(backend="vllm"))
