"""The verifier over SGLang's stand-in: what it asks for and refuses, what goes wrong, the checks at the start."""

import random
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.scripted import END, Script, ScriptedBackend
from specpair.engines.errors import ModelLoadError
from specpair.speculation.acceptance.token_sources import joined
from tests.verifier_server.conftest import SCRIPT
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.engine.external_cores.live import START, TEXT, AsServer, Live, over_sglang, prepare
from tests.verifier_server.support import PROMPT_IDS, leave_behind, until
from verifier_server.engine.sglang import load as sglang_load
from verifier_server.settings import Settings, SettingsError

Start = Callable[..., Live]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Start]:
    """Starts a verifier over a stand-in: `start(server, max_drafts=4)`."""
    with ExitStack() as running:

        def begin(server: AsServer | None = None, **given: Any) -> Live:
            return running.enter_context(over_sglang(monkeypatch, tmp_path, server, **given))

        yield begin


@pytest.fixture
def live(start: Start) -> Live:
    return start()


def server_of(live: Live) -> AsServer:
    assert isinstance(live.core, AsServer)
    return live.core


def stand_in(script: Script = SCRIPT, **given: Any) -> AsServer:
    return AsServer(ScriptedBackend(script, context_length=512), **given)


def answered(http: httpx.Client, path: str, body: Any) -> Any:
    """The reply, asked for again while SGLang is away, and where it broke off a text twice."""
    while (response := http.post(path, json=body)).status_code >= 500:
        assert response.json()["error"]["code"] in ("model_loading", "engine_error")
        time.sleep(0.01)
    assert response.status_code == 200, response.text
    return response.json()


def drafted(live: Live, prompt: list[int], expected: list[int], seed: int, **body: Any) -> list[int]:
    """A text by a client whose drafts are right, wrong, late or missing, as chance has it."""
    chance, fields = random.Random(seed), {"prompt_ids": prompt, "max_tokens": len(expected), **body}
    with live.client(headers={"X-Session-Id": f"session-{seed}"}) as http:
        reply = answered(http, "/prefill", fields)
        text: list[int] = reply["tokens"]
        while reply["finish_reason"] is None:
            known = chance.randint(max(1, len(text) - 3), len(text))
            draft = expected[known : len(text) + chance.randint(0, 8)]
            if draft and chance.random() < 0.4:
                draft[chance.randrange(len(draft))] = chance.randrange(256)
            reply = answered(http, "/verify", {"position": len(prompt) + known, "draft_tokens": draft})
            text[known:] = reply["tokens"]
    return text


def test_passes_bring_the_whole_text_and_ask_for_what_the_cache_has_not(live: Live) -> None:
    text: list[int] = live.post("/prefill", {"prompt_ids": PROMPT_IDS})["tokens"]
    live.verify(text, TEXT[1:4])
    decoded, judged = server_of(live).asked
    assert decoded["input_ids"] == PROMPT_IDS and judged["input_ids"] == [*PROMPT_IDS, *TEXT[:4]]
    assert (decoded["stream"], decoded["sampling_params"]["max_new_tokens"]) == (True, 1)
    assert decoded["sampling_params"]["stop_token_ids"] == [END]
    told = {name: judged[name] for name in ("return_logprob", "logprob_start_len", "top_logprobs_num")}
    assert told == {"return_logprob": True, "logprob_start_len": START, "top_logprobs_num": 4}
    assert judged["sampling_params"]["max_new_tokens"] == 1 and judged["sampling_params"]["temperature"] == 0.0
    assert decoded["cache_salt"] == judged["cache_salt"] and decoded["rid"] != judged["rid"]
    again = live.post("/prefill", {"prompt_ids": [*PROMPT_IDS, *TEXT[:4]]})
    assert again["cached_tokens"] == START + 3


def test_draft_interrupts_decoding_and_the_pass_is_aborted(live: Live) -> None:
    server = server_of(live)
    server.holds_in = 5
    opened = live.post("/prefill", {"prompt_ids": PROMPT_IDS, "self_continue": True})
    session, text = live.service.sessions.all()[0], opened["tokens"]
    until(lambda: len(session.tokens) == START + 5)
    [held] = server.running
    with ThreadPoolExecutor(1) as pool:
        draft = {"draft": TEXT[1:9], "session_id": opened["session_id"], "self_continue": False}
        sent = pool.submit(live.verify, text, **draft)
        until(lambda: held in server.aborted and server.judged == 4)
        server.gate.set()
        reply = sent.result()
    assert (text, reply["accepted_prefix_len"], reply["judged"]) == (TEXT[:10], 8, 4)
    assert joined(session.details.sources) == "bttttaaaab"
    until(server.is_idle)


@pytest.mark.parametrize("path", ["/verify", "/generate"])
def test_client_that_leaves_and_deletion_abort_the_pass(live: Live, path: str) -> None:
    server = server_of(live)
    body: dict[str, Any] = {"prompt_ids": PROMPT_IDS, "stream": True}
    if path == "/verify":
        opened = live.post("/prefill", {"prompt_ids": PROMPT_IDS})
        body = {"session_id": opened["session_id"], "position": START + 1, "draft_tokens": TEXT[1:4]}
    server.gate.clear()
    leave_behind(live, path, body, lambda: bool(server.running))
    if path == "/verify":
        live.http.delete(f"/sessions/{opened['session_id']}")
    until(lambda: bool(server.aborted))
    server.gate.set()
    until(server.is_idle)
    assert live.post("/generate", {"prompt_ids": PROMPT_IDS, "max_tokens": 9})["token_ids"] == TEXT[:9]


def test_what_sglang_cannot_judge_is_refused_with_the_reason(live: Live) -> None:
    model = live.http.get("/model").json()
    assert (model["backend"], model["model"], model["rows"]) == ("sglang", "scripted-2", 4)
    assert model["strategies"] == ["coupled", "deterministic", "greedy"]
    refused: dict[str, Any] = {
        "temperature": 0.5,
        "explain": True,
        "logprobs": 1,
        "logit_bias": {"65": 1.0},
        "repetition_penalty": 1.1,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "min_tokens": 3,
        "regex": "[a-z]+",
        "json_schema": {"type": "object"},
        "choice": ["a", "b"],
        "grammar": 'start: "a"',
    }
    assert {*refused, "grammar_after"} == {*model["refused"]}
    for name, value in refused.items():
        error = live.http.post("/prefill", json={"prompt_ids": PROMPT_IDS, name: value})
        assert (error.status_code, error.json()["error"]["param"]) == (422, name)
        assert error.json()["error"]["message"] == f"{name}: {model['refused'][name]}"
    for name in ("probabilistic", "threshold"):
        more = {"threshold": 0.5} if name == "threshold" else {}
        error = live.http.post("/prefill", json={"prompt_ids": PROMPT_IDS, "strategy": name, **more})
        assert (error.status_code, error.json()["error"]["param"]) == (422, "strategy")
    without = {"prompt_ids": PROMPT_IDS, "max_tokens": 5, "top_k": 3, "top_p": 0.5, "min_p": 0.5, "seed": 7}
    assert live.post("/generate", without)["token_ids"] == TEXT[:5]
    error = live.http.post("/v1/completions", json={"prompt": "x = ", "max_tokens": 5})
    assert error.status_code == 400 and error.json()["error"]["param"] == "temperature"
    reply = live.post("/v1/completions", {"prompt": PROMPT_IDS, "max_tokens": 5, "temperature": 0})
    assert reply["usage"]["completion_tokens"] == 5


def no_tops(reply: Any) -> Any:
    meta = reply["meta_info"]
    return reply | {"meta_info": meta | {"input_top_logprobs": None}} if "input_top_logprobs" in meta else reply


def shifted(reply: Any) -> Any:
    """As if the log probabilities were those of the position behind."""
    meta = dict(reply["meta_info"])
    for name in ("input_top_logprobs", "input_token_logprobs"):
        if len(rows := meta.get(name) or []) > 2:
            meta[name] = [rows[0], *rows[2:], rows[1]]
    return reply | {"meta_info": meta}


def other_ids(reply: Any) -> Any:
    return reply | {"output_ids": [258]}


def test_reply_that_cannot_be_used_is_an_error_and_commits_nothing(live: Live) -> None:
    text: list[int] = live.post("/prefill", {"prompt_ids": PROMPT_IDS})["tokens"]
    for damage in (no_tops, shifted, other_ids, lambda _reply: ["meta_info"]):
        server_of(live).damage = damage
        error = live.http.post("/verify", json={"position": START + 1, "draft_tokens": TEXT[1:4]})
        assert (error.status_code, error.json()["error"]["code"]) == (500, "engine_error")
        assert error.json()["error"]["message"].startswith("SGLang's reply cannot be used: ")
    server_of(live).damage = lambda reply: reply
    live.verify(text, TEXT[1:4])
    assert text == TEXT[:5]
    assert live.http.get("/health").json()["status"] == "ready"


def test_refusals_of_sglang_are_told_and_others_go_on(live: Live) -> None:
    server = server_of(live)
    text: list[int] = live.post("/prefill", {"prompt_ids": PROMPT_IDS})["tokens"]
    for status, body, expected in (
        (503, {"object": "error", "message": "The request queue is full.", "code": 503}, (503, "overloaded")),
        (400, {"error": {"message": "no"}}, (500, "engine_error")),
        (500, b"Internal Server Error", (500, "engine_error")),
    ):
        for draft in (TEXT[1:3], []):  # judged, decoded
            server.refusals.append((status, body))
            error = live.http.post("/verify", json={"position": START + 1, "draft_tokens": draft})
            assert (error.status_code, error.json()["error"]["code"]) == expected
    live.verify(text, TEXT[1:4])
    assert text == TEXT[:5]


def test_connection_that_breaks_once_is_made_again(live: Live) -> None:
    text: list[int] = live.post("/prefill", {"prompt_ids": PROMPT_IDS})["tokens"]
    server_of(live).cuts = 1
    live.verify(text, TEXT[1:4])
    server_of(live).cuts = 1
    live.verify(text, [])
    server_of(live).cuts = 2
    error = live.http.post("/verify", json={"position": START + 1, "draft_tokens": TEXT[1:9]})
    assert error.json()["error"]["code"] == "engine_error"
    assert error.json()["error"]["message"].startswith("SGLang aborted two passes of a text: ")
    live.verify(text, TEXT[6:9])
    assert text == TEXT[: len(text)]


def test_killed_server_fails_what_waits_and_texts_go_on_when_it_is_back(live: Live) -> None:
    server = server_of(live)
    text: list[int] = live.post("/prefill", {"prompt_ids": PROMPT_IDS})["tokens"]
    server.gate.clear()
    with live.client() as http, ThreadPoolExecutor(2) as pool:
        body = {"position": START + 1, "draft_tokens": TEXT[1:4]}
        waiting = pool.submit(live.http.post, "/verify", json=body)
        whole = pool.submit(http.post, "/generate", json={"prompt_ids": [256, 65], "max_tokens": 50})
        until(lambda: len(server.running) == 2)
        server.kill()
        for each in (waiting, whole):
            assert (each.result().status_code, each.result().json()["error"]["code"]) == (503, "model_loading")
            assert int(each.result().headers["Retry-After"]) == 2
    assert live.http.get("/health").json()["reason"].startswith(f"SGLang at {server.url} does not answer (")
    assert live.http.get("/live").status_code == 200
    server.gate.set()
    server.restart()
    until(lambda: live.http.get("/ready").status_code == 200)
    live.verify(text, TEXT[1:4])
    assert text == TEXT[:5]


def test_texts_are_the_model_s_when_the_server_dies_again_and_again(live: Live) -> None:
    server, prompts = server_of(live), [[256, *f"client {number}".encode()] for number in range(4)]
    expected = [plain(SCRIPT, prompt, 60) for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        texts = [
            pool.submit(drafted, live, prompt, text, number, self_continue=number % 2 == 0)
            for number, (prompt, text) in enumerate(zip(prompts, expected, strict=True))
        ]

        def gone_on(passes: int) -> bool:
            return server.passes > passes + 5 or all(each.done() for each in texts)

        for _ in range(3):
            until(partial(gone_on, server.passes))
            server.kill()
            server.restart()
        assert [each.result() for each in texts] == expected
    live.service.engine.check_integrity()


def test_server_that_comes_back_with_another_model_is_not_used(live: Live) -> None:
    server = server_of(live)
    server.kill()
    until(lambda: live.http.get("/health").json()["status"] == "loading")
    server.model["weight_version"] = "7"
    server.restart()
    until(lambda: live.http.get("/health").json()["status"] == "failed")
    reason = live.http.get("/health").json()["reason"]
    assert reason.endswith("its weight_version is '7' and was 'default': restart the verifier")
    error = live.http.post("/prefill", json={"prompt_ids": PROMPT_IDS})
    assert (error.status_code, error.json()["error"]["code"]) == (500, "engine_error")


def test_sglang_that_loads_is_waited_for(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = stand_in()
    server.loading = True
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(start, server)
        until(lambda: f"waiting for SGLang at {server.url}: it loads its model" in caplog.text)
        server.loading = False
        live = starting.result()
    assert live.http.get("/health").json()["status"] == "ready"


def without(name: str) -> Callable[[AsServer], object]:
    return lambda server: server.server.pop(name)


def spelled_otherwise(reply: Any) -> Any:
    meta = reply["meta_info"]
    entries = [[score, token, text and "X"] for score, token, text in meta.get("input_token_logprobs", ())]
    return reply | {"meta_info": meta | {"input_token_logprobs": entries}}


def turned(reply: Any) -> Any:
    """As if other positions were told of, under the right tokens."""
    meta = reply["meta_info"]
    tops = meta.get("input_top_logprobs", ())
    return reply | {"meta_info": meta | {"input_top_logprobs": [*tops[:1], *tops[2:], *tops[1:2]]}}


CHECKS: list[tuple[Callable[[AsServer], object], str]] = [
    (
        lambda server: setattr(server, "alien", True),
        "sglang_url: .*/health answers HTTP 404: is it another .*",
    ),
    (
        lambda server: server.model.update(is_generation=False),
        "sglang_url: it serves .*, which generates no text",
    ),
    (
        lambda server: server.model.update(disaggregation_mode="decode"),
        "sglang_url: it serves only prefill or only decoding: .*",
    ),
    (
        lambda server: server.model.update(preferred_sampling_params={"top_k": 5}),
        "sglang_url: it was started with --preferred-sampling-params.*",
    ),
    (
        lambda server: server.model.update(model_type="llama"),
        "model: its config.json is that of a scripted, and .*",
    ),
    (without("max_req_input_len"), "sglang_url: its /server_info has no max_req_input_len.*"),
    (
        lambda server: setattr(server, "key", "sesame"),
        r"sglang_api_key: http://127\.0\.0\.1:\d+ refuses this key.*",
    ),
    (lambda server: setattr(server, "damage", no_tops), "SGLang's replies cannot be used: input_top_logprobs has .*"),
    (lambda server: setattr(server, "damage", turned), "SGLang decodes .*: it must not be served"),
    (
        lambda server: setattr(server, "damage", spelled_otherwise),
        "model: its token 100 is 'd', and SGLang's is 'X'.*",
    ),
]


def refused(server: AsServer, model: Path | None, **given: Any) -> str:
    """Why the engine is not loaded."""
    try:
        settings = Settings(backend="sglang", sglang_url=server.url, model=model, **given)
        with pytest.raises(ModelLoadError) as caught:
            sglang_load.load(settings.load_options(), settings)
    finally:
        server.kill()
    return str(caught.value)


def test_server_that_cannot_be_a_verifier_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    prepare(monkeypatch, tmp_path)
    for change, words in CHECKS:
        server = stand_in()
        change(server)
        assert re.fullmatch(words, found := refused(server, tmp_path)), found


def test_wrong_settings_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    prepare(monkeypatch, tmp_path)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"backend": "sglang"}, "sglang_url: the sglang engine needs the address of a running server"),
        ({"backend": "sglang", "sglang_url": "127.0.0.1:30000"}, "is no address of the form http://host:port"),
        ({"backend": "sglang", "sglang_url": "http://me:secret@a"}, "is no address of the form http://host:port"),
        ({"backend": "scripted", "sglang_url": "http://a"}, "sglang_url: the engine is scripted: leave it out, or set"),
    ]
    for given, words in wrong:
        with pytest.raises((SettingsError, ValueError), match=words):
            Settings(**given)
    cases: list[tuple[Path | None, dict[str, Any], str]] = [
        (tmp_path / "none", {}, f"model: {tmp_path / 'none'} is no model folder: it has no config.json"),
        (None, {}, "model: SGLang's made/scripted-2 is no folder on this machine: give a folder that has "),
        (tmp_path, {"threads": 2}, "threads: the sglang backend has no such choice, leave it out"),
        (tmp_path, {"prefill_chunk": 64}, "prefill_chunk: SGLang has its own scheduler: leave it out"),
        (None, {"hf": "user/repo"}, "hf: SGLang has the model; "),
    ]
    for model, given, words in cases:
        assert refused(stand_in(), model, **given).startswith(words)


def test_other_versions_and_no_tokenizer_are_warned_of(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = stand_in()
    server.server |= {"version": "0.6.0", "disable_radix_cache": True}
    server.has_tokenizer = False
    live = start(server)
    assert live.http.get("/health").json()["status"] == "ready"
    for words in ("SGLang is 0.6.0", "--disable-radix-cache", "SGLang has no tokenizer"):
        assert words in caplog.text
