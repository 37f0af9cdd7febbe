"""Tables of measured passes: what stands between cells, beyond them, and what is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.costs.cost import BadCost, CostUnknown
from lab.simulator.costs.tables import MeasuredPass, PassTable, read_table
from tests.paths import ROOT

CELLS = [MeasuredPass(rows, tokens, 1e-3 * (10 + tokens * rows)) for rows in (1, 2, 4) for tokens in (1, 5, 9)]
noisy = st.lists(st.floats(1e-3, 1.0), min_size=9, max_size=9)
passes = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 4000)), min_size=1, max_size=4)


def table(times: list[float] | None = None) -> PassTable:
    return PassTable(CELLS if times is None else [c._replace(seconds=t) for c, t in zip(CELLS, times, strict=True)])


@pytest.mark.parametrize("cell", CELLS)
def test_a_measured_pass_takes_what_was_measured(cell: MeasuredPass) -> None:
    assert table().seconds([(cell.tokens, 0)] * cell.rows) == pytest.approx(cell.seconds)


def test_between_cells_and_beyond_them_times_go_on_in_a_line() -> None:
    assert table().seconds([(3, 0)]) == pytest.approx(13e-3)
    assert table().seconds([(2, 0), (4, 0), (3, 0)]) == pytest.approx(19e-3)
    assert table().seconds([(21, 0)]) == pytest.approx(31e-3)
    assert table().seconds([(2, 0)] * 6) == pytest.approx(22e-3)


@given(noisy, passes, st.data())
def test_times_never_fall_as_a_pass_grows(
    times: list[float], sequences: list[tuple[int, int]], data: st.DataObject
) -> None:
    grown = data.draw(st.sampled_from(range(len(sequences))))
    larger = [(new + (at == grown), cached) for at, (new, cached) in enumerate(sequences)]
    assert table(times).seconds(larger) >= table(times).seconds(sequences) - 1e-12


def test_a_table_of_one_context_says_the_same_for_all() -> None:
    assert table().seconds([(5, 8000)]) == table().seconds([(5, 0)])


def test_times_are_linear_in_the_context_between_two_that_were_measured() -> None:
    both = PassTable(
        [each._replace(context=at, seconds=each.seconds + at * 1e-6) for at in (100, 1100) for each in CELLS]
    )
    assert both.seconds([(5, 600), (5, 600)]) == pytest.approx(20.6e-3)
    assert both.seconds([(5, 0)]) == pytest.approx(15.1e-3), "less than was measured counts as the least that was"
    with pytest.raises(CostUnknown, match="tokens of context"):
        both.seconds([(5, 5000)])


@pytest.mark.parametrize(("sequences", "words"), [([(145, 0)], "145 tokens"), ([(1, 0)] * 17, "17 rows")])
def test_a_pass_far_beyond_the_cells_is_refused_with_what_to_measure(
    sequences: list[tuple[int, int]], words: str
) -> None:
    with pytest.raises(CostUnknown, match=f"{words}.*verify_curve"):
        table().seconds(sequences)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([], "at least one"),
        ([CELLS[0], CELLS[0]], "measured twice"),
        ([CELLS[0], CELLS[1]._replace(context=5)], "at which context"),
    ],
)
def test_what_is_no_table_is_refused(cells: list[MeasuredPass], words: str) -> None:
    with pytest.raises(BadCost, match=words):
        PassTable(cells)


@pytest.mark.parametrize("path", sorted((ROOT / "lab" / "benchmarks" / "results").glob("verify_curve_*.json")), ids=str)
def test_files_of_the_benchmark_are_read(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    cost = read_table(path)
    for each in (cells[0], cells[-1]):
        highest = max(c["ms"] for c in cells if c["rows"] <= each["rows"] and c["drafts"] <= each["drafts"])
        tokens = [(each["drafts"] + 1, 512)] * each["rows"]
        assert 1e3 * cost.seconds(tokens) == pytest.approx(highest), "or what a smaller pass took"


def test_files_at_several_contexts_make_one_table(tmp_path: Path) -> None:
    paths = [tmp_path / "short.json", tmp_path / "long.json"]
    for path, context, ms in zip(paths, (0, 1000), (10.0, 20.0), strict=True):
        path.write_text(json.dumps({"context": context, "cells": [{"rows": 1, "drafts": 0, "ms": ms}]}))
    assert read_table(*paths).seconds([(1, 500)]) == pytest.approx(15e-3)


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "Expecting"), ("{}", "cells"), ('{"cells": [{"rows": 1, "drafts": 0, "ms": -1}]}', r"cells\.0\.ms")],
)
def test_a_file_of_another_form_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(BadCost, match=f"x.json is no file .*{words}"):
        read_table(path)
    with pytest.raises(BadCost, match=r"none.json is no file"):
        read_table(tmp_path / "none.json")
