"""`python -m drafter_client`: text on standard output, metrics on standard error, one JSON object with --json."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backends.scripted import Script, ScriptedBackend
from drafter_client import draft_sources
from specpair.command_line.start import READER_LEFT
from specpair.drafters.draft_model import BRANCH_CELLS
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import Verifier, plain, serving, toy_text
from tests.paths import ROOT

PROMPT = "def f(x):"
KEYS = {
    *("text", "token_ids", "prompt_tokens", "generated_tokens", "rounds", "drafted", "accepted", "acceptance_rate"),
    *("mean_acceptance_length", "tokens_per_second", "ttft_ms", "times_ms", "bytes_sent", "bytes_received"),
    *(
        "finish_reason",
        "ended_by",
        "sampling",
        "baseline",
        "drafts_sent",
        "mispredicted",
        "next_draft_ready",
        "schedules",
        "token_sources",
    ),
    *("looked_up", "looked_up_accepted", "itl_ms", "token_ms"),
}


def _text(ids: list[int]) -> str:
    return bytes(ids).decode(errors="replace")


def _flags(verifier: Verifier, *more: str) -> list[str]:
    return ["--verifier", verifier.url, *TOY, "--prompt", PROMPT, "--max-tokens", "24", *more]


@pytest.mark.parametrize("stream", [[], ["--no-stream"]], ids=["streamed", "at the end"])
def test_standard_output_is_the_unchanged_text(drafter: Command, verifier: Verifier, stream: list[str]) -> None:
    ran = drafter(*_flags(verifier, "--max-tokens", "200", *stream))
    assert (ran.status, ran.out) == (0, _text(toy_text(200)) + "\n")
    assert any(character in ran.out for character in "\t\r\v\f\b")  # which rich would have removed
    assert "acceptance rate" in ran.err
    assert verifier.sessions == 0


def test_json_is_one_object_and_nothing_else(drafter: Command, verifier: Verifier) -> None:
    ran = drafter(*_flags(verifier, "--json", "--draft-n", "3", "--lockstep"))
    report = json.loads(ran.out)
    assert (ran.status, ran.err, ran.out.count("\n")) == (0, "", 1)
    assert KEYS <= report.keys()
    assert report["token_ids"] == toy_text(24) and report["text"] == _text(report["token_ids"])
    assert report["prompt_tokens"] == 1 + len(PROMPT) and report["generated_tokens"] == 24
    assert (report["drafted"], report["accepted"], report["acceptance_rate"]) == (17, 17, 1.0)
    assert (report["rounds"], report["mean_acceptance_length"]) == (6, pytest.approx(1 + 17 / 6, abs=1e-3))
    assert report["finish_reason"] == "length" and report["baseline"] is None and report["speed_up"] is None
    assert report["times_ms"].keys() == {"prefill", "drafting", "network", "queue", "verify"}
    assert 0 < sum(report["times_ms"].values()) <= report["total_ms"] + 0.05
    assert 0 < report["ttft_ms"] <= report["total_ms"]
    assert report["tokens_per_second"] == pytest.approx(24e3 / report["total_ms"], rel=1e-2)
    assert 0 < report["bytes_sent"] < report["bytes_received"]


_MANY = ["--prompt-file", "", "--concurrency"]


@pytest.mark.parametrize(
    ("flags", "texts", "branches"),
    [
        ([], 1, 6),
        (["--lockstep"], 1, 1),
        ([*_MANY, "4"], 4, 6),
        ([*_MANY, "43"], 43, 5),
        ([*_MANY, "64", "--branches", "64"], 64, 4),
    ],
    ids=lambda each: " ".join(each[1:]) if isinstance(each, list) else str(each),
)
def test_the_draft_model_gets_a_slot_for_each_branch_and_little_memory(
    drafter: Command,
    verifier: Verifier,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    flags: list[str],
    texts: int,
    branches: int,
) -> None:
    """As many branches as the engine has slots; branches of one text share nearly all their tokens."""
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a\n" * 64, encoding="utf-8")
    flags = [flag or str(prompts) for flag in flags]
    asked: list[LoadOptions] = []

    def load(name: str, options: LoadOptions, progress: object) -> ScriptedBackend:
        asked.append(options)
        return ScriptedBackend(Script(seed=1), slots=options.slots or 1)

    monkeypatch.setattr(draft_sources, "load_draft", load)
    given = ["--prompt", "a"] if texts == 1 else []
    ran = drafter("--verifier", verifier.url, "--max-tokens", "2", *given, *flags)
    assert ran.status == 0, ran.err
    (options,) = asked
    assert (options.slots, options.contexts) == (texts * branches, texts)
    assert options.shared_cells == texts * (branches - 1) * BRANCH_CELLS


def test_a_draft_model_without_room_is_reported_in_terms_of_flags(
    drafter: Command, verifier: Verifier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def load(name: str, options: LoadOptions, progress: object) -> ScriptedBackend:
        raise ModelLoadError("no room for 12 rows")

    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a\nb\n", encoding="utf-8")
    monkeypatch.setattr(draft_sources, "load_draft", load)
    ran = drafter("--verifier", verifier.url, "--prompt-file", str(prompts), "--concurrency", "2")
    assert (ran.status, ran.out) == (1, "")
    message = "no room for 12 rows; slots are for 2 texts at a time (--concurrency), 6 for each (--branches)"
    assert ran.err == f"drafter: {message}\n"


def test_the_baseline_is_measured_and_compared(drafter: Command, verifier: Verifier) -> None:
    for flags in ([], ["--temperature", "0.8"]):
        report = json.loads(drafter(*_flags(verifier, "--json", "--baseline", *flags)).out)
        baseline = report["baseline"]
        assert baseline.keys() == {"tokens_per_second", "ttft_ms", "generated_tokens", "same_tokens"}
        assert baseline["same_tokens"] is True and baseline["generated_tokens"] == 24
        assert baseline["tokens_per_second"] > 0 and baseline["ttft_ms"] > 0
        ratio = report["tokens_per_second"] / baseline["tokens_per_second"]
        assert report["speed_up"] == pytest.approx(ratio, rel=1e-2, abs=1e-3), "it is rounded to three digits"
    assert verifier.sessions == 0


def test_a_seed_is_reported_and_gives_the_same_text_again(drafter: Command, verifier: Verifier) -> None:
    first = json.loads(drafter(*_flags(verifier, "--json", "--temperature", "0.9", "--top-k", "50")).out)
    sampling = first["sampling"]
    assert (sampling["temperature"], sampling["top_k"], sampling["top_p"]) == (0.9, 50, 1.0)
    again = ["--json", "--temperature", "0.9", "--top-k", "50", "--seed", str(sampling["seed"]), "--draft-n", "0"]
    assert json.loads(drafter(*_flags(verifier, *again)).out)["token_ids"] == first["token_ids"]
    other = ["--json", "--temperature", "0.9", "--top-k", "50", "--seed", str(sampling["seed"] ^ 1)]
    assert json.loads(drafter(*_flags(verifier, *other)).out)["token_ids"] != first["token_ids"]


def test_the_prompt_comes_from_a_flag_or_a_pipe(drafter: Command, verifier: Verifier) -> None:
    prompt = "é\r\n\tnaïve 😀"
    flags = ["--verifier", verifier.url, *TOY, "--max-tokens", "8", "--json"]
    piped = [prompt.encode(), prompt.encode("utf-8-sig")]  # some shells put a byte order mark before the text
    rans = [drafter(*flags, "--prompt", prompt), *(drafter(*flags, stdin=each) for each in piped)]
    reports = [json.loads(ran.out) for ran in rans]
    assert [report["token_ids"] for report in reports] == [toy_text(8, prompt)] * 3
    assert {report["prompt_tokens"] for report in reports} == {1 + len(prompt.encode())}


def test_an_end_token_is_in_the_ids_and_not_in_the_text(drafter: Command) -> None:
    script = Script(seed=1, end_bias=8.0)
    with serving(ScriptedBackend(script)) as verifier:
        report = json.loads(drafter(*_flags(verifier, "--json", "--max-tokens", "500")).out)
    assert report["finish_reason"] == "stop" and report["token_ids"][-1] == 257
    assert report["text"] == _text(report["token_ids"][:-1])


def test_a_stop_string_ends_the_text_and_what_the_statistics_say(drafter: Command, verifier: Verifier) -> None:
    ids = toy_text(24)
    at = next(at for at in range(8, 24) if ids[at] < 128 and ids[at] not in ids[:at])
    ran = drafter(*_flags(verifier, "--stop", chr(ids[at]), "--baseline"))
    assert (ran.status, ran.out) == (0, _text(ids[:at]) + "\n")
    assert "ended by stop_string" in ran.err and f"drafter: {at + 1} tokens" in ran.err and "differs" not in ran.err
    assert "--stop: is empty: give at least one character" in drafter(*_flags(verifier, "--stop", "")).err


def test_chat_applies_the_targets_template(drafter: Command) -> None:
    target = ScriptedBackend(Script(seed=1))
    target.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}assistant:"
    with serving(target) as verifier:
        report = json.loads(drafter(*_flags(verifier, "--chat", "--system", "Be brief", "--json")).out)
    ids = [256, *b"system: Be brief", 257, *b"user: " + PROMPT.encode(), 257, *b"assistant:"]
    assert report["prompt_tokens"] == len(ids)
    assert report["token_ids"] == plain(ScriptedBackend(Script(seed=1)), ids, 24)


def test_a_key_is_taken_from_a_flag_or_the_environment(drafter: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(api_key="sesame") as verifier:
        assert drafter(*_flags(verifier, "--api-key", "sesame")).status == 0
        monkeypatch.setenv("DRAFTER_API_KEY", "sesame")
        assert drafter(*_flags(verifier)).status == 0
        monkeypatch.setenv("DRAFTER_API_KEY", "wrong")
        ran = drafter(*_flags(verifier))
        assert ran.status == 1 and "sesame" not in ran.err
        assert "does not take this key: give it with --api-key, or DRAFTER_API_KEY" in ran.err
        monkeypatch.setenv("DRAFTER_API_KEY", "")
        ran = drafter(*_flags(verifier))
        assert ran.status == 1 and "wants its key: give it with --api-key, or DRAFTER_API_KEY" in ran.err


def test_colours_say_where_tokens_came_from(
    drafter: Command, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    ran = drafter(*_flags(verifier, "--draft-n", "2", "--lockstep"))
    legend, _, text = ran.out.partition("\n")
    assert "accepted" in legend and "recovered" in legend
    assert "\x1b[32m" in text and "\x1b[36m" in text  # accepted tokens in green, bonus tokens in cyan
    assert "\x1b[33m" not in text  # no recovered tokens: the drafter is the target
    assert "\x1b[J" not in ran.err, "colours are forced, but a pipe gets no status line"


def test_a_reader_who_leaves_ends_the_program_quietly(verifier: Verifier) -> None:
    command = [sys.executable, "-m", "drafter_client", *_flags(verifier, "--max-tokens", "400")]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ})
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    with process.stderr:
        complaints = process.stderr.read()
    assert (process.wait(), complaints) == (READER_LEFT, b"")
    assert verifier.sessions == 0
