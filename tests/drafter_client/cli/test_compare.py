"""`drafter compare`: medians with quartiles, ratios within pairs, the fastest way; every way by turns."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client import Mode, Pair
from drafter_client.cli.compare import AUTO, WayResult, conclusion, shuffled, table, ways
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import Verifier, running
from verifier_server.settings import Settings

MODES = [Mode.REMOTE, Mode.FUSED, Mode.TARGET]


def _text(way: str, run: int, prompt: int, rate: float, ids: tuple[int, ...] = (1, 2)) -> WayResult:
    return WayResult(way, "some", run, prompt, ids, rate, 10.0 * rate, 8 if way != "target" else 0, 6)


def _texts(rates: dict[str, list[float]]) -> list[WayResult]:
    return [_text(way, run, 0, rate) for way, several in rates.items() for run, rate in enumerate(several)]


@given(st.integers(0, 50), st.integers(0, 50))
def test_the_order_of_a_text_is_fixed_and_has_each_way_once(run: int, prompt: int) -> None:
    found = ways(MODES, range(1, 9))
    order = shuffled(found, run, prompt)
    assert sorted(order, key=found.index) == found and order == shuffled(found, run, prompt)


def test_ways_are_ranked_by_the_ratio_within_pairs() -> None:
    """The machine became ten times slower in the middle; the drafter was twice as fast as the target all the time."""
    found = table("some", _texts({"target": [10.0, 10.0, 1.0, 1.0], "remote": [20.0, 21.0, 2.0, 2.1]}))
    target, remote = found.rows
    assert (target.ratio, remote.ratio, remote.rate) == (1.0, 2.05, 11.05)
    assert (found.best, found.second, found.won, found.texts) == ("remote", "target", 4, 4)
    assert (
        conclusion(found)
        == "fastest fixed mode: remote, 2.05 times the target alone; faster than target in 4 of 4 texts"
    )


def test_two_similar_ways_are_too_close_to_call() -> None:
    found = table("some", _texts({"target": [10.0] * 4, "fused": [20.0, 19.0, 21.0, 20.0], "remote": [19.0, 20.0] * 2}))
    assert (found.best, found.second, found.won, found.clear) == ("fused", "remote", 2, False)
    assert conclusion(found).endswith("faster than remote in 2 of 4 texts, which is too close to call")


def test_auto_is_shown_beside_the_fastest_fixed_mode() -> None:
    found = table("some", _texts({"target": [10.0], "remote": [20.0], AUTO: [30.0]}))
    assert (found.best, found.second) == ("remote", "target")
    assert [row.way for row in found.rows] == ["target", "remote", AUTO]
    assert conclusion(found) == (
        "fastest fixed mode: remote, 2.00 times the target alone (auto: 3.00); faster than target in 1 of 1 text"
    )
    slower = table("some", _texts({"target": [10.0], AUTO: [9.0]}))
    assert conclusion(slower) == "fastest fixed mode: the target alone (auto: 0.90)"


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "def f(x):"}\n{"prompt": "class A", "temperature": 0.9}\n')
    return file


def test_every_way_writes_every_text(drafter: Command, verifier: Verifier, prompts: Path) -> None:
    flags = ["--runs", "2", "--max-tokens", "12", "--lengths", "2,4", "--seed", "5"]
    ran = drafter("compare", "--verifier", verifier.url, *TOY, "--prompt-file", str(prompts), *flags, "--json")
    assert ran.status == 0, ran.err
    report = json.loads(ran.out)
    (found,) = report["tables"]
    assert [row["way"] for row in found["rows"]] == ["target", "remote k=2", "remote k=4", "remote", "auto"]
    assert all((row["texts"], row["same"]) == (4, 4) for row in found["rows"])
    assert (found["kind"], found["texts"], len(report["texts"])) == ("mine", 4, 20)
    by_prompt = {tuple(text["token_ids"]) for text in report["texts"] if text["prompt"] == 1}
    assert len(by_prompt) == 2, "with a temperature, each run has another text"
    took, why = report["auto"]["took"], report["auto"]["why"]
    assert took in ("remote", "target", None) and ("tokens/s at a round trip of" in why or took is None)
    assert verifier.sessions == 0


# A warm-up in each of three ways; auto is the fourth.
@pytest.mark.parametrize(("most", "texts"), [(3 + 4 + 3, 1), (3 + 2, 0)])
def test_an_interrupted_comparison_shows_what_all_ways_have_written(
    drafter: Command, verifier: Verifier, prompts: Path, monkeypatch: pytest.MonkeyPatch, most: int, texts: int
) -> None:
    generate, calls = Pair.generate, list[int]()

    def interrupted(*given: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == most:
            raise KeyboardInterrupt
        return generate(*given, **options)

    monkeypatch.setattr(Pair, "generate", interrupted)
    flags = ["--runs", "2", "--max-tokens", "2", "--lengths", "2", "--prompt-file", str(prompts), "--no-remember"]
    ran = drafter("compare", "--verifier", verifier.url, *TOY, *flags, "--json")
    assert ran.status == 130 and "drafter: run 1 of 2, prompt 1 of 2\n" in ran.err
    if texts:
        report = json.loads(ran.out)
        assert report["interrupted"] and {row["texts"] for row in report["tables"][0]["rows"]} == {texts}
        assert "the tables have the texts that all ways have written" in ran.err
    else:
        assert not ran.out and "drafter: interrupted\n" in ran.err


def test_lengths_above_the_limit_of_the_verifier_are_left_out(drafter: Command, prompts: Path) -> None:
    flags = ["--runs", "1", "--max-tokens", "2", "--lengths", "1,2,4", "--prompt-file", str(prompts)]
    with running(Settings(backend="scripted", model=Path("1"), max_drafts=2)) as small:
        ran = drafter("compare", "--verifier", small.url, *TOY, *flags, "--no-remember", "--json")
    first, *progress = ran.err.splitlines()
    assert first == "drafter: --lengths: this verifier judges 2 draft tokens at once, more are left out"
    assert progress == ["drafter: run 1 of 1, prompt 1 of 2", "drafter: run 1 of 1, prompt 2 of 2"]
    (found,) = json.loads(ran.out)["tables"]
    assert [row["way"] for row in found["rows"]] == ["target", "remote k=1", "remote k=2", "remote", "auto"]


def test_the_shipped_prompts_are_of_two_kinds(drafter: Command, verifier: Verifier) -> None:
    flags = ["--runs", "1", "--max-tokens", "4", "--lengths", "1"]
    ran = drafter("compare", "--verifier", verifier.url, *TOY, *flags)
    assert ran.status == 0, ran.err
    for kind in ("predictable", "high entropy", "all"):
        assert f"scripted-1: {kind}, " in ran.out
    assert "fastest fixed mode: " in ran.out and "\nauto " in ran.out


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--lengths", "4-2"], "--lengths: '4-2' ends before it begins"),
        (["--lengths", "1,x"], "--lengths: 'x' is not a whole number"),
        (["--lengths", "1-65"], "--lengths: must be at most 64, got 65"),
        (["--runs", "0"], "--runs: must be at least 1, got 0"),
        (["--backend", "ngram", "--threads", "2"], "--threads: --backend ngram drafts without a model"),
    ],
)
def test_flags_that_make_no_sense_are_refused(drafter: Command, flags: list[str], complaint: str) -> None:
    ran = drafter("compare", *flags)
    assert ran.status == 2 and complaint in ran.err


def test_a_prompt_file_given_twice_is_refused(drafter: Command, prompts: Path) -> None:
    ran = drafter("compare", "--prompt-file", str(prompts), "--prompt-file", str(prompts))
    assert ran.status == 1 and f"the prompt file {prompts} is given twice" in ran.err


def test_a_narrow_terminal_gets_fewer_columns(
    drafter: Command, verifier: Verifier, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--runs", "1", "--max-tokens", "2", "--lengths", "4", "--prompt-file", str(prompts)]
    command = ["compare", "--verifier", verifier.url, *TOY, *flags]
    assert "same text" in drafter(*command).out
    monkeypatch.setenv("COLUMNS", "40")
    shown = drafter(*command).out
    assert "remote k=4" in shown and "x target" in shown and "same text" not in shown
