"""The curve of verify costs: what is timed, against what, and what comes of it; and one real run of a tiny model."""

import subprocess
import sys
from pathlib import Path

import pytest

from backends.scripted import Script, ScriptedBackend
from lab.benchmarks.verify_curve import Cell, Passes, Timing, grid, main, options_from, tables
from lab.simulator.costs.cost import LinearCost
from lab.simulator.costs.tables import read_table
from lab.simulator.paced.engine import Paced
from models import DEFAULT_DRAFT
from specpair.engines.backend import TopLogitsSpec
from tests.paths import ROOT
from tests.stand_ins.clock import Time

COST = LinearCost(10.0, 0.5, 2.0)


@pytest.fixture
def passes() -> Passes:
    time = Time()
    backend = ScriptedBackend(Script(support=256), slots=4, context_length=64, max_batch_tokens=24)
    return Passes(Paced(backend, COST, time.clock, time.sleep), 40, TopLogitsSpec(1, 1.0, 258), time.clock)


def test_trees_have_second_choices_beside_the_begin_of_a_chain() -> None:
    cell = Cell(1, 6, 3)
    assert (cell.parents, cell.path, cell.tokens) == ((1, 1, 1, 1, 5, 5), [1, 6], 7)
    assert Cell(1, 2, 2).parents == (1, 2) and Cell(1, 2, 2).path == [2] and Cell(1, 6).parents == ()
    assert grid([2, 4], [3], 8) == [(1, 0, 1), (2, 0, 1), (2, 3, 1), (4, 0, 1)], (
        "what fits, and what it is compared with"
    )
    assert grid([1], [2, 6], 8, [2, 4]) == [(1, 0, 1), (1, 2, 1), (1, 2, 2), (1, 6, 1), (1, 6, 2), (1, 6, 4)]


def test_a_path_of_each_timed_tree_is_kept(passes: Passes) -> None:
    cells = grid([2], [6], 24, [2, 4])
    assert {cell.leaves for cell in cells} == {1, 2, 4}
    for cell in cells:
        assert 1e3 * passes.seconds(cell) == pytest.approx(12.0 + 0.5 * (cell.tokens - 1) if cell.rows == 2 else 10.0)
    found = {cell: Timing(1.0, float(cell.tokens * cell.leaves), 0.0) for cell in cells}
    assert tables(found)[-4:] == [
        "trees of k drafts, times the chain of k, rows 2",
        "leaves \\ k        6",
        "         2     2.00",
        "         4     4.00",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give one of --shape and --model"),
        (["--shape", "tiny", "--model", "a.gguf"], "give one of --shape and --model"),
        (["--shape", "tiny", "--backend", "llama_cpp"], "--shape: llama_cpp needs a --model"),
        (["--shape", "tiny", "--rows", "0"], "--rows: must be 1 or more, got 0"),
        (["--shape", "tiny", "--temperature", "-1"], "temperature must be in [0, 100], got -1.0"),
    ],
)
def test_options_that_cannot_be_are_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options_from(arguments)
    assert words in capsys.readouterr().err


def test_llama_cpp_reads_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = ["--rows", "1", "2", "--drafts", "0", "3", "--leaves", "2", "--context-held", "20", "--seconds", "0"]
    main(["--model", str(DEFAULT_DRAFT), "--backend", "llama_cpp", "--threads", "1", *limits, "--out", str(tmp_path)])
    said = capsys.readouterr().out
    assert f"# model: {DEFAULT_DRAFT.stem}\n" in said and "trees of k drafts, times the chain of k, rows 2" in said


@pytest.mark.engine("torch")
def test_a_run_with_nothing_installed_but_torch_and_transformers(tmp_path: Path) -> None:
    others = ("llama_cpp", "gguf", "accelerate", "fastapi", "pydantic", "uvicorn", "rich", "jinja2", "matplotlib")
    program = (
        f"import runpy, sys; sys.modules.update(dict.fromkeys({others})); "
        "runpy.run_module('lab.benchmarks.verify_curve', run_name='__main__')"
    )
    options = ["--shape", "tiny", "--device", "cpu", "--threads", "1", "--rows", "1", "2", "--drafts", "0", "2", "16"]
    options += ["--context-held", "70", "--batch-tokens", "64", "--seconds", "0", "--out", str(tmp_path)]
    command = [sys.executable, "-c", program, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (cells,) = tmp_path.glob("*_tiny_torch_float32.json")
    assert read_table(cells).seconds([(3, 16)]) > 0, "the simulator reads what a pass takes from it"
    (text,) = tmp_path.glob("*_tiny_torch_float32.txt")
    assert text.read_text() == done.stdout
    assert str(tmp_path) not in done.stdout
    for fact in ("model: tiny", "dtype: float32", "rounds: 3"):
        assert f"# {fact}\n" in done.stdout
    rows = [line.split() for line in done.stdout.partition("times one decode step\n")[2].splitlines()[:3]]
    assert [row[-3:] for row in rows[:1]] == [["0", "2", "16"]] and [row[0] for row in rows[1:]] == ["1", "2"]
    assert all(float(ratio) > 0 for row in rows[1:] for ratio in row[1:])
