"""Runs side by side: pairs of replications, what is noise, the tables, and the command."""

import csv
import json
import math
from pathlib import Path

import pytest

from lab.simulator import command_line
from lab.simulator.comparison import tables
from lab.simulator.comparison.differences import are_paired, differences, unlike_keys
from lab.simulator.comparison.page import page
from lab.simulator.configuration.reading import parse
from lab.simulator.results.measures import MEASURES
from lab.simulator.results.replications import Replication
from lab.simulator.results.series import parts_of
from lab.simulator.results.summary import Summary
from tests.lab.simulator.small_fleet import SMALL_FLEET

FLEET = SMALL_FLEET + "seed: 1\nreplications: 2\n"
CONFIGURATION = parse(FLEET, "fleet.yaml", Path()).model_dump(mode="json")
OVER_TIME = ("throughput_tps", "ttft_p95_ms", "tpot_p95_ms", "queue_depth")


def run(name: str, throughput: list[float], seed: int = 0, **measures: float) -> Summary:
    """A run whose replications differ in their throughput alone. `seed`: of the first; the others follow."""
    found = tuple(
        Replication(
            seed + number,
            0.3,
            {"throughput_tps": each, **measures},
            {},
            {},
            {},
            {key: [each] * parts_of(0.3) for key in OVER_TIME},
        )
        for number, each in enumerate(throughput)
    )
    return Summary(name, "0", {**CONFIGURATION, "replications": len(found)}, found)


LOADS = [100.0, 180.0, 60.0, 130.0]


def test_the_same_seeds_pair_replications_and_what_they_share_drops_out() -> None:
    before, after = run("a", LOADS), run("b", [load + 2 + 0.1 * at for at, load in enumerate(LOADS)])
    other = run("c", after.values("throughput_tps"), seed=9)
    assert are_paired(before, after) and not are_paired(before, other)
    paired, welch = (differences(before, each)["throughput_tps"] for each in (after, other))
    assert paired.gap.mean == pytest.approx(welch.gap.mean) == pytest.approx(2.15)
    assert (paired.state, welch.state) == ("better", "noise")
    assert paired.relative.mean == pytest.approx(2.15 / 117.5)


def test_runs_of_unlike_length_are_paired_as_far_as_both_go() -> None:
    found = differences(run("a", LOADS), run("b", [101.0, 181.5]))["throughput_tps"]
    assert found.gap.mean == 1.25 and found.gap.half is not None


def test_a_difference_is_better_worse_more_less_equal_noise_or_unknown() -> None:
    before = run("a", [100.0, 101.0], ttft_p95_ms=10.0, utilisation=0.5, aborted=0.0)
    after = run("b", [100.0, 103.0], ttft_p95_ms=20.0, utilisation=0.4, aborted=0.0, acceptance=0.5)
    assert {name: each.state for name, each in differences(before, after).items()} == {
        "throughput_tps": "noise",
        "ttft_p95_ms": "worse",
        "utilisation": "less",
        "aborted": "equal",
        "acceptance": "",
    }
    assert differences(run("a", [1.0]), run("b", [2.0]))["throughput_tps"].state == "one run"
    assert math.isnan(differences(before, after)["aborted"].relative.mean)


def test_keys_that_differ_are_named_by_their_paths() -> None:
    other = parse(FLEET.replace("count: 3", "count: 9").replace("mode: lockstep", "mode: remote"), "b.yaml", Path())
    second = Summary("b", "0", other.model_dump(mode="json"), run("b", [1.0, 2.0]).replications)
    assert unlike_keys([run("a", [1.0, 2.0]), second]) == {
        "mode": ["lockstep", "remote"],
        "devices.drafters[laptop].count": ["3", "9"],
    }


def test_tables_files_and_the_page_show_all_runs() -> None:
    runs = [run("a", LOADS), run("b", [load + 9 for load in LOADS]), run("c", [50.0], seed=7)]
    shown = tables.measures(runs)
    assert shown.headings == ("measure", "a", "b", "b - a", "", "c", "c - a", "")
    [row] = shown.rows
    assert row[3:5] == ("+9.00 ± 0 (+7.7 %)", "better") and row[-1] == "one run"
    head, *lines = tables.rows(runs)
    assert [line[3] for line in lines] == ["b", "c"] and len({len(line) for line in (head, *lines)}) == 1
    assert any("Welch" in each for each in tables.said(runs)) and any("single" in each for each in tables.said(runs))
    html = page(runs)
    assert "<script" not in html and html.count("<svg") >= 1 + len(OVER_TIME) and "replications" in html


def test_the_command_compares_folders_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, folder = tmp_path / "fleet.yaml", tmp_path / "slow"
    file.write_text(FLEET, encoding="utf-8")
    slow = ["run", str(file), "--set=gamma=1", f"--output={folder}", "--no-png", "--jobs=1"]
    assert command_line.run(slow) == 0
    cells, html = tmp_path / "c.csv", tmp_path / "c.html"
    asked = ["compare", str(folder), str(file), "--jobs=1", f"--csv={cells}", f"--page={html}"]
    capsys.readouterr()
    assert command_line.run(asked) == 0
    out = capsys.readouterr().out
    assert "fleet is compared with slow pair by pair" in out and "gamma.length" in out
    with cells.open(encoding="utf-8", newline="") as lines:
        found = {row["measure"]: row for row in csv.DictReader(lines)}
    assert {*found} < {*MEASURES} and found["tpot_p50_ms"]["paired"] == "True"
    assert html.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, old = tmp_path / "fleet.yaml", tmp_path / "old"
    file.write_text(FLEET, encoding="utf-8")
    old.mkdir()
    (old / "summary.json").write_text(json.dumps({"format": "another"}), encoding="utf-8")
    for given, said in (
        ([file], "give two runs at least"),
        ([tmp_path, tmp_path], "summary.json cannot be read"),
        ([old, file], "has not the form"),
        ([tmp_path / "none", file], "is neither a folder of results nor a configuration"),
        ([file, file, "--set=gamma=0"], "gamma"),
    ):
        assert command_line.run(["compare", *map(str, given)]) == 1
        assert said in capsys.readouterr().err
