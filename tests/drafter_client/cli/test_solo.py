"""drafter solo, and a new user's first hour."""

import json
from pathlib import Path

import pytest
from huggingface_hub import constants

from backends.scripted import Script, ScriptedBackend
from drafter_client import draft_sources
from models import DEFAULT_DRAFT, DEFAULT_TARGET
from specpair.engines.load_options import LoadOptions
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import Verifier, plain, serving, toy_text
from tests.stand_ins.hub import serving as hub_serving

PROMPT = "def f(x):"
ALONE = ["solo", "--backend", "scripted", "--model", "1"]
TEXT = ["--prompt", PROMPT, "--max-tokens", "24"]


def _flags(where: str, verifier: Verifier) -> list[str]:
    return [*(["solo", "server", "--verifier", verifier.url] if where == "server" else ALONE), *TEXT]


@pytest.mark.parametrize("where", ["here", "server"])
def test_it_writes_the_text_and_times_every_token(drafter: Command, verifier: Verifier, where: str) -> None:
    ran = drafter(*_flags(where, verifier), "--json")
    report = json.loads(ran.out)
    assert (ran.status, ran.err) == (0, "")
    assert report["token_ids"] == toy_text(24) and report["ended_by"] == "max_tokens"
    assert (report["mode"], report["model"]) == ("solo" if where == "here" else "target", "scripted-1")
    assert (report["rounds"], report["drafted"], report["acceptance_rate"]) == (0, 0, None)
    assert report["token_sources"] == {
        "accepted": 0,
        "recovered": 0,
        "bonus": 24,
        "target_decoded": 0,
        "head": 0,
        "forced": 0,
    }
    token_ms = report["token_ms"]
    assert len(token_ms) == 24 and token_ms[0] == report["ttft_ms"] > 0 and min(token_ms) >= 0
    assert sum(token_ms) <= report["total_ms"] + 0.25  # both are rounded
    assert report["itl_ms"]["longest"] == max(token_ms[1:]) >= report["itl_ms"]["p90"] >= report["itl_ms"]["median"]
    assert (report["bytes_sent"] > 0) == (where == "server")
    assert verifier.sessions == 0


def test_the_shipped_models_have_names(drafter: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path | None] = []

    def load(name: str, options: LoadOptions, progress: object) -> ScriptedBackend:
        asked.append(options.model)
        return ScriptedBackend(Script(seed=1))

    monkeypatch.setattr(draft_sources, "load", load)
    for which in (["solo"], ["solo", "target"], ["solo", "draft"], ["solo", "--model", "x.gguf"]):
        assert drafter(*which, *TEXT).status == 0
    assert asked == [DEFAULT_TARGET, DEFAULT_TARGET, DEFAULT_DRAFT, Path("x.gguf")]


@pytest.mark.parametrize("where", ["here", "server"])
def test_one_model_alone_answers_chats_and_stops(drafter: Command, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    target = ScriptedBackend(Script(seed=1))
    target.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}assistant:"
    ids = [256, *b"system: brief", 257, *b"user: " + PROMPT.encode(), 257, *b"assistant:"]
    text = plain(ScriptedBackend(Script(seed=1)), ids, 24)
    at = next(at for at in range(8, 24) if text[at] < 128 and text[at] not in text[:at])
    monkeypatch.setattr(draft_sources, "load", lambda *_: target)
    with serving(target) as verifier:
        chat = ["--chat", "--system", "brief", "--stop", "never", "--stop", chr(text[at]), "--json"]
        report = json.loads(drafter(*_flags(where, verifier), *chat).out)
    assert (report["token_ids"], report["ended_by"]) == (text[: at + 1], "stop_string")
    assert report["text"] == bytes(text[:at]).decode(errors="replace")


def test_chats_need_a_template_and_a_system_message_a_chat(drafter: Command) -> None:
    assert "the target model has no chat template: leave --chat out" in drafter(*ALONE, *TEXT, "--chat").err
    assert "--system is a message of a chat: add --chat" in drafter(*ALONE, *TEXT, "--system", "x").err
    assert "no 'Why'; choose one of target, draft, server, a prompt follows --prompt" in drafter("solo", "Why").err


def test_a_text_cut_by_the_context_is_reported(drafter: Command) -> None:
    flags = [*ALONE, "--context", "20", *TEXT]
    ran = drafter(*flags)
    assert "the context (20 tokens) is full: --max-tokens asked for more" in ran.err
    report = json.loads(drafter(*flags, "--json").out)
    assert (report["generated_tokens"], report["finish_reason"], report["ended_by"]) == (10, "length", "context")


def test_a_text_cut_by_the_verifiers_context_is_reported(drafter: Command) -> None:
    with serving(ScriptedBackend(Script(seed=1), context_length=20)) as verifier:
        for mode in ([], ["--mode", "target"], ["--lockstep"]):
            engine = [] if "target" in mode else ["--backend", "scripted", "--draft-model", "1"]
            ran = drafter("--verifier", verifier.url, *mode, *engine, *TEXT, "--json")
            report = json.loads(ran.out)
            assert (report["generated_tokens"], report["ended_by"]) == (10, "context")
            exact = drafter("--verifier", verifier.url, *mode, *engine, *TEXT, "--max-tokens", "10", "--json")
            assert json.loads(exact.out)["ended_by"] == "max_tokens"


def test_a_model_is_named_on_the_hub(drafter: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_serving({"u/pair": {"Small-F16.gguf": DEFAULT_DRAFT.read_bytes()}}) as stand_in:
        monkeypatch.setattr(constants, "ENDPOINT", stand_in.address)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        ran = drafter("solo", "-hf", "u/pair:f16", "--prompt", "def f(", "--max-tokens", "4", "--json")
        assert ran.status == 0 and json.loads(ran.out)["model"] == "Small-F16"
        ran = drafter("solo", "--hf", "u/pair:Q8_0", "--prompt", "x")
        assert (ran.status, ran.err) == (1, "drafter: u/pair has no model Q8_0, but these: F16\n")


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--model", "a.gguf"], "--hf: --model names a model, too, leave one of the two out"),
        (["draft"], "--hf: 'solo draft' is the shipped draft model, leave one of the two out"),
        (["server"], "--hf: with 'solo server' the model runs on the verifier"),
    ],
)
def test_a_second_model_beside_a_named_one_is_refused(drafter: Command, flags: list[str], error: str) -> None:
    ran = drafter("solo", *flags, "--hf", "u/m", "--prompt", "x")
    assert ran.status == 2 and error in ran.err


@pytest.mark.parametrize("end", ["/v1", "/v1/"])
def test_an_address_with_openai_s_path_is_refused_with_what_to_leave_out(
    drafter: Command, verifier: Verifier, end: str
) -> None:
    ran = drafter("--verifier", verifier.url + end, *TOY, "--prompt", "x")
    assert ran.status == 1 and f"{verifier.url}/v1 has no /health: leave /v1 out" in ran.err


def test_a_foreign_target_is_told_from_the_draft_model_that_ships(drafter: Command) -> None:
    with serving(ScriptedBackend(Script())) as foreign:
        ran = drafter("--verifier", foreign.url, "--prompt", "x", "--threads", "1")
        named = drafter("--verifier", foreign.url, "--prompt", "x", "--threads", "1", "--translate", "--json")
    assert ran.status == 1 and named.status == 0
    assert (
        "Name it by --draft-model (stdlib-draft-q8_0 ships, and is taken where none is named), or let this one"
        in ran.err
    )
