"""Verifiers over vLLM itself: texts, drafts at any time, many sessions, a small cache, two ranks, the core's death."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from specpair.speculation.sampling.distribution import probabilities, token_logprobs
from specpair.speculation.sampling.sampling import Sampling
from tests.specpair.speculation import chi_square
from tests.verifier_server.conftest import LiveServer
from tests.verifier_server.engine.vllm.conftest import NEAR, Reference, Start
from tests.verifier_server.engine.vllm.texts import DRAWN, LENGTH, PROMPTS, drafted, generated, sampling_of
from tests.verifier_server.processes import MODULE, ready
from tests.verifier_server.support import until
from verifier_server.engine.external_cores.core_engine import CoreEngine
from verifier_server.engine.vllm.core import VllmCore
from verifier_server.engine.vllm.plugins import KEY

pytestmark = [pytest.mark.engine("vllm"), pytest.mark.filterwarnings("ignore")]  # vLLM and its libraries warn


def processes(live: LiveServer) -> list[int]:
    """The ids of vLLM's processes, the core first."""
    engine = live.service.engine
    assert isinstance(engine, CoreEngine) and isinstance(engine.core, VllmCore)
    [core] = engine.core.client.resources.engine_manager.processes
    children = Path(f"/proc/{core.pid}/task/{core.pid}/children").read_text().split()
    return [core.pid, *map(int, children)]


@pytest.mark.parametrize("fields", DRAWN.values(), ids=DRAWN)
def test_texts_are_those_of_torch_with_any_drafts(
    verifier_on_vllm: LiveServer, reference: Reference, fields: dict[str, Any]
) -> None:
    for seed, prompt in enumerate(PROMPTS):
        ids = reference.vocabulary.encode(prompt)
        text = generated(verifier_on_vllm, ids, fields, seed)
        reference.check(ids, text, sampling_of(fields, seed))
        for body in (fields, {**fields, "self_continue": True}):
            assert drafted(verifier_on_vllm.http, ids, text, body, seed) == text
    verifier_on_vllm.service.engine.check_integrity()


def test_prompt_in_the_cache_but_for_its_last_token_has_no_draft(
    verifier_on_vllm: LiveServer, reference: Reference
) -> None:
    ids = [5 + at for at in range(129)]  # one more than a block of vLLM's cache holds
    for cached in (None, 128):
        reply = verifier_on_vllm.post("/prefill", {"prompt_ids": ids, "max_tokens": 2})
        assert (reply["sources"], reply.get("cached_tokens")) == ("b", cached)


def test_greedy_text_is_that_of_vllm_alone(verifier_on_vllm: LiveServer, reference: Reference, folder: Path) -> None:
    prompts = [reference.vocabulary.encode(prompt) for prompt in PROMPTS]
    program = f"""
from vllm import LLM, SamplingParams
if __name__ == "__main__":
    model = LLM({str(folder)!r}, dtype="float32", max_model_len=512, enforce_eager=True, skip_tokenizer_init=True)
    params = SamplingParams(temperature=0, max_tokens={LENGTH}, ignore_eos=True, stop_token_ids={
        sorted(reference.vocabulary.ends)
    }, detokenize=False)
    for each in model.generate([{{"prompt_token_ids": ids}} for ids in {prompts!r}], params, use_tqdm=False):
        print("TEXT", *each.outputs[0].token_ids)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    texts = [[*map(int, line.split()[1:])] for line in ran.stdout.splitlines() if line.startswith("TEXT")]
    assert texts == [generated(verifier_on_vllm, ids, {}, 0) for ids in prompts], ran.stderr[-2000:]


def test_text_that_cannot_go_on_is_told_and_others_are_intact(reference: Reference) -> None:
    from verifier_server.engine.vllm.plugins.worker import Judging

    torch = pytest.importorskip("torch")
    params = SimpleNamespace(extra_args={KEY: {"rule": ["coupled", {}, 0.0, 3]}}, logprobs=None)
    batch = SimpleNamespace(num_reqs=2, req_ids=["a", "b"], num_tokens_no_spec=np.array([3, 3]))
    runner = SimpleNamespace(input_batch=batch, requests=dict.fromkeys("ab", SimpleNamespace(sampling_params=params)))
    logits = torch.zeros(2, reference.vocabulary.size)
    logits[0, 7], logits[1] = 1.0, float("nan")
    assert Judging(runner, reference.vocabulary).sampled(None, logits).sampled_token_ids.tolist() == [[7, -1], [-1, -1]]
    logits[1] = 0.0  # of equal ones, the first
    assert Judging(runner, reference.vocabulary).sampled(None, logits).sampled_token_ids.tolist() == [[7], [0]]


def test_drawn_tokens_have_the_target_s_distribution(verifier_on_vllm: LiveServer, reference: Reference) -> None:
    """Of a token behind an accepted draft token, by many seeds."""
    ids = reference.vocabulary.encode(PROMPTS[0])
    fields: dict[str, Any] = {"temperature": 0.9, "top_k": 30, "top_p": 0.95}
    first = generated(verifier_on_vllm, ids, {**fields, "max_tokens": 1}, 0)

    def second(seed: int) -> int:
        body = {"prompt_ids": [*ids, *first], "max_tokens": 1, "seed": seed, **fields}
        token: int = verifier_on_vllm.post("/generate", body)["token_ids"][0]
        return token

    with ThreadPoolExecutor(8) as pool:
        found = Counter(pool.map(second, range(600)))
    p = probabilities(reference.row([*ids, *first], Sampling(), len(ids)), Sampling(0, **fields))
    tokens = [int(token) for token in np.flatnonzero(p)]
    assert set(found) <= set(tokens)
    assert chi_square.fits_pooled([found[token] for token in tokens], [float(p[token]) for token in tokens])


def test_held_texts_keep_no_core_busy(verifier_on_vllm: LiveServer, reference: Reference) -> None:
    for prompt in PROMPTS:
        verifier_on_vllm.post("/prefill", {"prompt_ids": reference.vocabulary.encode(prompt)})

    def used() -> float:
        fields = [
            Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in processes(verifier_on_vllm)
        ]
        return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")

    time.sleep(1.5)  # a worker of vLLM polls for a second after each step
    before = used()
    time.sleep(1.0)
    assert used() - before < 0.3


def test_client_that_leaves_and_deletion_free_the_engine(verifier_on_vllm: LiveServer, reference: Reference) -> None:
    live, ids = verifier_on_vllm, reference.vocabulary.encode(PROMPTS[1])
    for session in live.service.sessions.all():
        live.http.delete(f"/sessions/{session.id}")
    until(lambda: live.service.engine.state.slots_in_use == 0)
    body = {"prompt_ids": ids, "max_tokens": 400, "stream": True}
    with live.client() as http, http.stream("POST", "/generate", json=body) as reply:
        next(reply.iter_lines())
    until(lambda: live.service.engine.state.waiting + live.service.engine.state.running == 0)
    opened = live.post("/prefill", {"prompt_ids": ids})
    live.http.delete(f"/sessions/{opened['session_id']}")
    for session in live.service.sessions.all():
        live.http.delete(f"/sessions/{session.id}")
    until(lambda: live.service.engine.state.slots_in_use == 0)


def test_log_probabilities_are_those_of_torch(verifier_on_vllm: LiveServer, reference: Reference) -> None:
    ids, most = reference.vocabulary.encode(PROMPTS[0]), 3
    body = {"prompt_ids": ids, "max_tokens": 12, "temperature": 0.8, "seed": 4, "logprobs": most}
    whole = verifier_on_vllm.post("/generate", body)
    text = whole["token_ids"]
    opened = verifier_on_vllm.post("/prefill", body)
    reply = verifier_on_vllm.post("/verify", {"position": len(ids) + 1, "draft_tokens": [*text[1:5], text[5] ^ 1]})
    drafted = [*opened["logprobs"], *reply["logprobs"]]
    assert [each["token"] for each in drafted] == text[:6]
    for told in (whole["logprobs"], drafted):
        for at, each in enumerate(told):
            row = reference.row([*ids, *text[:at]], Sampling(), len(ids))
            expected = token_logprobs(row, text[at], most)
            assert each["logprob"] == pytest.approx(expected.logprob, abs=NEAR)
            assert [value for _, value in each["top"]] == pytest.approx([v for _, v in expected.top], abs=NEAR)


def test_killed_core_is_told_and_a_restart_goes_on_with_two_ranks(
    start: Start, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, ids = start(slots=2), reference.vocabulary.encode(PROMPTS[0])
    body = {"prompt_ids": ids, "max_tokens": LENGTH, "seed": 5, "temperature": 0.8}
    text = generated(live, ids, body, 5)
    with live.client() as http:
        opened = http.post("/prefill", json=body, headers={"X-Session-Id": "session-of-a-killed-core"}).json()
        os.kill(processes(live)[0], signal.SIGKILL)
        until(lambda: live.http.get("/health").json()["status"] == "failed")
        error = http.post(
            "/verify", json={"session_id": opened["session_id"], "draft_tokens": [], "position": len(ids) + 1}
        )
        assert (error.status_code, error.json()["error"]["code"]) == (500, "engine_error")
        assert live.http.get("/ready").status_code == 503
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
    again = start({"tensor_parallel_size": 2}, slots=2)
    committed = body | {"committed_ids": opened["tokens"]}
    with again.client(headers={"X-Session-Id": opened["session_id"]}) as http:
        reply = http.post("/prefill", json=committed).json()
        known = [*opened["tokens"], *reply["tokens"]]
        while reply["finish_reason"] is None:
            draft = text[len(known) : len(known) + 5]
            reply = http.post("/verify", json={"position": len(ids) + len(known), "draft_tokens": draft}).json()
            known += reply["tokens"]
    reference.check(ids, known, sampling_of({"temperature": 0.8}, 5))


def test_vllms_processes_end_with_a_verifier_that_is_killed(folder: Path) -> None:
    """The engine core and its two workers: no process may hold the machine's memory without a verifier."""
    settings = {"BACKEND": "vllm", "MODEL": str(folder), "SLOTS": "2", "CONTEXT": "512", "DTYPE": "float32"}
    ranks = {
        "VERIFIER_VLLM_ARGS": "{tensor_parallel_size = 2, enforce_eager = true}",
        "VLLM_CPU_OMP_THREADS_BIND": "0|1",
    }
    named = {f"VERIFIER_{name}": value for name, value in settings.items()}
    with ready(MODULE, **named, **ranks) as (process, _):
        started = below(process.pid)
        assert len(started) >= 3
        process.kill()
        try:
            until(lambda: not any(map(runs, started)))
        finally:
            for each in filter(runs, started):
                os.kill(each, signal.SIGKILL)


def below(pid: int) -> list[int]:
    """The ids of a process's children, of theirs, and so on."""
    children = [int(each) for path in Path(f"/proc/{pid}/task").glob("*/children") for each in path.read_text().split()]
    return children + [each for child in children for each in below(child)]


def runs(pid: int) -> bool:
    """Whether a process has not ended, and does more than wait to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
