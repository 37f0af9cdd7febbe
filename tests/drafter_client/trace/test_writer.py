"""Writing traces: they add up with the run's statistics, under all mechanisms and however the run ended."""

import errno
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from io import FileIO
from pathlib import Path
from typing import Any

import pandas
import pytest

from drafter_client import DraftModel, Mode, Options, Pair
from drafter_client.errors import TraceError
from drafter_client.generation.events import (
    Committed,
)
from drafter_client.http.client import VerifierClient
from drafter_client.statistics import Stats
from drafter_client.trace import writer
from drafter_client.trace.writer import RUNS, TABLES, TOKENS, Column, TraceFolder, TraceTable, append
from lab.report.reader import read_run, read_table
from specpair.speculation.acceptance.token_sources import TokenSource
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from tests.drafter_client.cli.command_line import TOY, Command
from tests.drafter_client.support import (
    ALL,
    GREEDY,
    PROMPT,
    WAYS,
    Scenario,
    Verifier,
    generate,
    target_alone,
    toy_drafter,
)
from tests.forking import started
from tests.paths import ROOT

NOON = datetime(2026, 3, 4, 13, 0, 0, 250_000, tzinfo=timezone(timedelta(hours=1)))


def traced(folder: Path, client: VerifierClient, drafter: Any = None, **how: Any) -> Stats:
    """A run with a trace."""
    stats = Stats(model="big", draft_model="small, or so")
    with TraceFolder(folder, lambda: NOON).run(stats) as listener:
        how = {"max_tokens": 40, "seed": 3, **how}
        generate(client, drafter or toy_drafter(0.7), stats=stats, listener=listener, **how)
    return stats


def detail(folder: Path, run: int = 1) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((folder / f"run-{run}.json").read_text(encoding="utf-8"))
    return body


@pytest.mark.parametrize("mechanisms", [LOCKSTEP, *WAYS.values()], ids=["lockstep", *WAYS])
def test_trace_adds_up_with_the_statistics(client: VerifierClient, tmp_path: Path, mechanisms: Mechanisms) -> None:
    stats = traced(tmp_path, client, mechanisms=mechanisms)
    rounds, tokens = pandas.read_csv(tmp_path / "rounds.csv"), pandas.read_csv(tmp_path / "tokens.csv")
    [run] = pandas.read_csv(tmp_path / "runs.csv").to_dict("records")
    answered = rounds[rounds.arrived_ms.notna()]

    assert (rounds.ran.sum(), len(rounds)) == (stats.rounds, stats.drafts_sent) == (run["rounds"], run["drafts_sent"])
    assert (rounds.judged.sum(), rounds.accepted.sum()) == (stats.drafted, stats.accepted)
    assert (run["drafted"], run["accepted"]) == (stats.drafted, stats.accepted)
    assert (rounds.looked_up.sum(), run["looked_up"]) == (stats.looked_up, stats.looked_up)
    assert (answered.k >= answered.judged).all() and (answered.judged >= answered.accepted).all()
    assert rounds["round"].tolist() == list(range(1, len(rounds) + 1))

    assert tokens.token.tolist() == stats.token_ids == target_alone(GREEDY, 40)
    assert tokens.position.tolist() == list(range(len(PROMPT), len(PROMPT) + 40))
    sources = {source.value: count for source, count in stats.sources.items() if count}
    assert tokens.source.value_counts().to_dict() == sources
    assert tokens.target_decoded.sum() == (tokens.source == "target_decoded").sum() == run["target_decoded_tokens"]
    assert tokens.committed_ms.is_monotonic_increasing and tokens.committed_ms.iloc[-1] <= run["total_ms"] + 0.01
    if mechanisms is LOCKSTEP:
        assert rounds.committed.sum() == 39  # all but the prefill's

    [prefill] = detail(tmp_path)["prefills"]
    assert answered.queue_ms.sum() + prefill["queue_ms"] == pytest.approx(1e3 * stats.times.queue, abs=0.01)
    assert answered.forward_ms.sum() == pytest.approx(1e3 * stats.times.verify, abs=0.01)
    waited = answered.queue_ms + answered.forward_ms + answered.network_ms
    assert (waited >= answered.rtt_ms - 0.01).all()
    assert rounds.draft_ms.sum() <= 1e3 * stats.times.drafting + 0.01
    assert answered.arrived_ms.to_numpy() == pytest.approx((answered.sent_ms + answered.rtt_ms).to_numpy(), abs=0.01)


def test_json_file_holds_the_whole_run(client: VerifierClient, tmp_path: Path) -> None:
    stats = Stats(model="big", mode="auto")
    with TraceFolder(tmp_path).run(stats, {"lookup": True}) as listener:
        generate(client, toy_drafter(), 3, stats=stats, listener=listener, max_tokens=20)
    body = detail(tmp_path)
    assert (body["schema"], body["run"], body["metrics"]["mode"], body["error"]) == (1, 1, "auto", None)
    assert body["settings"] == {"lookup": True}
    assert body["metrics"] == json.loads(json.dumps(stats.metrics()))
    assert [row["token"] for row in body["tokens"]] == stats.token_ids
    assert sum(row["k"] for row in body["rounds"]) == sum(len(row["drafts"]) for row in body["rounds"])
    for row in body["rounds"]:
        assert len(row["drafts"]) == len(row["confidence"]) == len(row["from_lookup"])
        assert not row["k"] or row["confidence_min"] == min(row["confidence"]) <= row["confidence_mean"]
    took = [step["ended_ms"] - step["began_ms"] for step in body["steps"]]
    assert sum(took) == pytest.approx(1e3 * stats.times.drafting, abs=0.01 * len(took)) and min(took) > 0
    assert all(step["width"] == len(step["drafts"]) == 1 <= step["read"] for step in body["steps"])
    [prefill] = body["prefills"]
    assert prefill["arrived_ms"] == pytest.approx(stats.ttft_ms)


class Interrupted(Scenario):
    """Raises an error in the second round, after one of three draft tokens."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__(lambda tokens: 0)
        self._error, self._steps_left = error, 3

    def expand(self, text: Sequence[int], tails: Sequence[Sequence[int]], runners_up: int) -> Any:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise self._error
        return super().expand(text, tails, runners_up)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
@pytest.mark.parametrize("mechanisms", [LOCKSTEP, ALL], ids=["lockstep", "all"])
def test_run_that_ends_early_leaves_a_trace(
    client: VerifierClient, tmp_path: Path, mechanisms: Mechanisms, error: type[BaseException]
) -> None:
    with pytest.raises(error):
        traced(tmp_path, client, Interrupted(error), length=3, mechanisms=mechanisms, max_tokens=900)
    run = read_run(tmp_path)
    assert (run.metrics["error"], run.metrics["finish_reason"]) == (error.__name__, None)
    assert len(run.tokens) == run.metrics["generated_tokens"] == len(detail(tmp_path)["tokens"])
    assert 0 < len(run.tokens) < 900
    if mechanisms is LOCKSTEP:
        assert [(row["k"], row["judged"]) for row in run.rounds] == [(3, 3)]
        assert len(run.detail.steps) == 3


def test_taken_run_number_is_not_used_again(tmp_path: Path) -> None:
    traces = TraceFolder(tmp_path)
    (tmp_path / "run-7.json").write_text("of a writer that was killed")
    (tmp_path / "run-x.json").write_text("another file")
    with traces.run(Stats()):
        pass
    assert [row["run"] for row in read_table(tmp_path, RUNS)] == [8]
    assert (tmp_path / "run-7.json").read_text() == "of a writer that was killed"


WRITER = """
import sys
from pathlib import Path
from drafter_client.trace.writer import TraceFolder
from drafter_client.statistics import Stats
for number in range(25):
    with TraceFolder(Path(sys.argv[1])).run(Stats(model=f"{sys.argv[2]}-{number}")):
        pass
"""


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "shared")]
    writers = [started([*command, name], os.environ, subprocess.PIPE) for name in ("a", "b", "c")]
    assert [(*writer.communicate(timeout=60), writer.wait()) for writer in writers] == [("", "", 0)] * 3
    runs = read_table(tmp_path / "shared", RUNS)
    assert sorted(int(row["run"] or 0) for row in runs) == list(range(1, 76))
    assert Counter(str(row["model"]) for row in runs) == Counter(f"{name}-{n}" for name in "abc" for n in range(25))


def test_unusable_folder_is_refused_before_the_run(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(TraceError, match=r"the trace .*file cannot be written: File exists"):
        TraceFolder(file)
    (tmp_path / "rounds.csv").write_text("a,b\n1,2\n")
    with pytest.raises(TraceError, match=r"rounds\.csv, line 1: these are not the columns .* name another folder"):
        TraceFolder(tmp_path)
    assert (tmp_path / "rounds.csv").read_text() == "a,b\n1,2\n"


def test_only_tokens_of_the_text_are_written(tmp_path: Path) -> None:
    stats = Stats(mode="auto", prompt_tokens=3, token_ids=[5, 6, 7, 8])
    # The second commit is of a stretch from which no more tokens were taken.
    commits = [(3, [5, 6], 0.01), (5, [9, 9], 0.011), (5, [7, 8, 4], 0.012)]
    with TraceFolder(tmp_path).run(stats) as listener:
        for position, tokens, now in commits:
            listener(Committed(position, [(token, TokenSource.BONUS) for token in tokens]), now)
    rows = read_table(tmp_path, TOKENS)
    assert [(row["position"], row["token"], row["committed_ms"]) for row in rows] == [
        *((3, 5, 10.0), (4, 6, 10.0)),
        *((5, 7, 12.0), (6, 8, 12.0)),
    ]


HEAD = "a,b\n"


def test_unfinished_line_of_a_killed_writer_stays_separate(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,")
    append(path, HEAD, "3,4\n")
    assert path.read_text() == "a,b\n1,\n3,4\n"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_incomplete_lines_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    class Full(FileIO):
        """Writes three bytes, then fails."""

        written = False

        def write(self, data: bytes) -> int:  # type: ignore[override]
            if self.written:
                raise error
            self.written = True
            return super().write(data[:3])

    path = tmp_path / "t.csv"
    append(path, HEAD, "1,2\n")
    monkeypatch.setattr(writer, "open", lambda path, mode, buffering: Full(path, "a+"), raising=False)
    expected = TraceError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        append(path, HEAD, "3,4\n")
    assert path.read_text() == "a,b\n1,2\n"


DOCS = ROOT / "docs" / "traces.md"
NUMBERS = {"number", "tokens", "share", "ms", "bytes", "tokens/s", "0, 1", "0 or 1"}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.file)
def test_documented_columns_are_the_written_columns(table: TraceTable) -> None:
    section = DOCS.read_text(encoding="utf-8").partition(f"## {table.file}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+) \| (.+) \| (.+) \|$", section, re.MULTILINE)
    documented = [(name, value) for names, value, _ in rows for name in re.findall(r"`(\w+)`", names)]
    assert [name for name, _ in documented] == table.names
    for column, (_, value) in zip(table.columns, documented, strict=True):
        assert value.endswith(" or empty") is not column.needed, column.name
        assert (value.removesuffix(" or empty") == "text") is (column.kind is str), column.name
        assert value.removesuffix(" or empty") in {"text", *NUMBERS}, column.name


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, 2**60, "7", [1], {"a": 1}, None])
def test_invalid_numbers_become_empty_cells(value: object) -> None:
    assert Column("it", float).cell(value) == Column("it", int).cell(value) == ""


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
    assert ran.out.startswith("run 1, one of 2: remote, 24 tokens, ") and "scripted-1 drafts for scripted-1" in ran.out


def test_text_is_recorded_on_request(drafter: Command, verifier: Verifier, tmp_path: Path) -> None:
    ran = drafter(*_flags(verifier, tmp_path, "--profile-text", "--verbose", "--stop", "zz"))
    printed, body = json.loads(ran.out), json.loads((tmp_path / "run-1.json").read_text())
    assert (ran.status, ran.err) == (0, "")
    assert "".join(body["text"]) == printed["text"] and len(body["text"]) == len(body["tokens"]) == 24
    spelled = {int(token) for token in body["pieces"]}
    assert spelled == {*printed["token_ids"]}.union(*(each["drafts"] for each in body["rounds"]))
    drafter(*_flags(verifier, tmp_path))
    assert not {"text", "pieces"} & {*json.loads((tmp_path / "run-2.json").read_text())}


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
