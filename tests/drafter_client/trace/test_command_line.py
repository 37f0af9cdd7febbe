"""`--profile` and `report` on the command line, and traces of a `Pair`'s texts in every mode."""

import json
from pathlib import Path

import pytest

from drafter_client import DraftModel, Mode, Options, Pair
from drafter_client.trace.schema import RUNS
from drafter_client.trace.writer import TraceFolder
from lab.report.reader import read_run, read_table
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import InterruptedAfter, Verifier


def _flags(verifier: Verifier, folder: Path, *more: str) -> list[str]:
    flags = ["--verifier", verifier.url, *TOY, "--prompt", "def f(x):", "--max-tokens", "24", "--draft-n", "3"]
    return [*flags, "--profile", f"{folder}", "--json", *more]


def test_profile_flag_writes_a_trace_that_report_shows(drafter: Command, verifier: Verifier, tmp_path: Path) -> None:
    ran = drafter(*_flags(verifier, tmp_path, "--baseline"))
    printed = json.loads(ran.out)
    assert (ran.status, ran.err) == (0, "")
    rows = read_table(tmp_path, RUNS)
    assert [(row["run"], row["mode"], row["error"]) for row in rows] == [(1, "remote", None), (2, "target", None)]
    for row in rows:
        run = read_run(tmp_path, int(row["run"] or 0))
        assert [each["token"] for each in run.tokens] == printed["token_ids"]
    for name in ("model", "draft_model", "rounds", "drafted", "accepted", "bytes_sent", "tokens_per_second"):
        assert rows[0][name] == printed[name]
    settings = json.loads((tmp_path / "run-1.json").read_text())["settings"]
    assert (settings["draft_n"], settings["mode"], settings["seed"]) == (3, "remote", printed["sampling"]["seed"])

    ran = drafter("report", f"{tmp_path}", "--run", "1")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("run 1, one of 2, ") and "acceptance by depth" in ran.out


def test_text_is_recorded_on_request(drafter: Command, verifier: Verifier, tmp_path: Path) -> None:
    ran = drafter(*_flags(verifier, tmp_path, "--profile-text", "--verbose", "--stop", "zz"))
    printed, body = json.loads(ran.out), json.loads((tmp_path / "run-1.json").read_text())
    assert (ran.status, ran.err) == (0, "")
    assert "".join(body["text"]) == printed["text"] and len(body["text"]) == len(body["tokens"]) == 24
    spelled = {int(token) for token in body["pieces"]}
    assert spelled == {*printed["token_ids"]}.union(*(each["drafts"] for each in body["rounds"]))
    drafter(*_flags(verifier, tmp_path))
    assert not {"text", "pieces"} & {*json.loads((tmp_path / "run-2.json").read_text())}


def test_recorded_text_needs_a_folder(drafter: Command) -> None:
    ran = drafter(*TOY, "--prompt", "x", "--profile-text")
    assert (ran.status, ran.out) == (2, "")
    assert "--profile-text: is recorded in the folder that --profile names, which is missing" in ran.err


def test_report_of_a_missing_folder_fails_with_the_reason(drafter: Command, tmp_path: Path) -> None:
    ran = drafter("report", f"{tmp_path / 'no'}")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == f"drafter: the trace {tmp_path / 'no' / 'runs.csv'} cannot be read: No such file or directory\n"


def test_foreign_folder_is_refused_before_the_run(drafter: Command, verifier: Verifier, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("mine\n")
    ran = drafter(*_flags(verifier, tmp_path))
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(f"drafter: {tmp_path / 'runs.csv'}, line 1: these are not the columns")


@pytest.mark.parametrize("how", [["--lockstep"], ["--max-tokens", "900"]])
def test_interrupted_run_leaves_a_trace(
    drafter: Command, verifier: Verifier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: list[str]
) -> None:
    monkeypatch.setattr("specpair.drafters.draft_model.ModelDrafter", InterruptedAfter)
    ran = drafter(*_flags(verifier, tmp_path, *how))
    printed = json.loads(ran.out)
    assert (ran.status, ran.err, printed["finish_reason"]) == (130, "", None)
    run = read_run(tmp_path)
    assert (run.metrics["error"], run.metrics["finish_reason"]) == ("KeyboardInterrupt", None)
    assert [row["token"] for row in run.tokens] == printed["token_ids"] != []


def test_texts_of_every_mode_leave_a_trace(verifier: Verifier, tmp_path: Path) -> None:
    with Pair(verifier.url, DraftModel(Path("1"), "scripted"), observer=TraceFolder(tmp_path)) as pair:
        modes = [*pair.modes, Mode.AUTO]
        ended = [pair.generate("def f(x):", Options(max_tokens=200, mode=mode, seed=3)).read() for mode in modes]
    rows = read_table(tmp_path, RUNS)
    assert [row["mode"] for row in rows] == [str(mode) for mode in modes]
    for number, (mode, text) in enumerate(zip(modes, ended, strict=True), 1):
        run = read_run(tmp_path, number)
        assert [row["token"] for row in run.tokens] == text.token_ids
        assert run.metrics["rounds"] == text.stats.rounds
        if mode is Mode.REMOTE:
            assert sum(int(row["ran"] or 0) for row in run.rounds) == text.stats.rounds


def test_nothing_is_recorded_without_a_folder(
    verifier: Verifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Pair(verifier.url, DraftModel(Path("1"), "scripted")) as pair:
        pair.generate("def f(x):", Options(max_tokens=9)).read()
    assert not list(tmp_path.iterdir())
