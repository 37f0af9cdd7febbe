"""The search: its space, its rule of halving, what it shows; with a fleet of formulas in place of a simulation."""

import csv
import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator import __main__, command_line
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.reading import parse
from lab.simulator.results.measures import MEASURES
from lab.simulator.search.evaluation import Evaluate, EvaluateAll, Job, Values, evaluation
from lab.simulator.search.halving import check_budget, halve
from lab.simulator.search.outcomes import Goals, Outcome, dominates, ranked, surely_dominates
from lab.simulator.search.page import page
from lab.simulator.search.pareto import is_on_front, rows, state, table
from lab.simulator.search.search_file import read_search
from lab.simulator.search.space import BadSearch, Candidate, Space, candidates, parse_vary
from lab.simulator.search.terminal_plot import plotted
from tests.lab.simulator.small_fleet import SMALL_FLEET as FLEET

COUNT = "devices.drafters[laptop].count"
NO_MATTER = parse(FLEET, "fleet.yaml", Path())
GOALS = Goals.of(["throughput_tps", "ttft_p95_ms"])


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET, encoding="utf-8")
    return file


def by_formula(configuration: Configuration, seed: int) -> Values:
    """Tokens grow with drafters up to 6, waiting grows on; a load that all share is most of the noise."""
    count = configuration.devices.drafters[0].count
    load, own = random.Random(seed).gauss(0, 10), random.Random(f"{seed}/{count}").gauss(0, 0.01)
    return dict.fromkeys(MEASURES, 1.0) | {
        "throughput_tps": 100 + 10 * min(count, 6) - max(count - 6, 0) + load + own,
        "ttft_p95_ms": 50 + 5 * count + load + own,
        "slo_attainment": 1.0 if count < 9 else 0.5,
    }


def made(fleet: Path, *counts: int) -> list[Candidate]:
    return candidates(Space({COUNT: counts}, {}), fleet)[0]


def searched(found: Sequence[Candidate], goals: Goals = GOALS, **more: Any) -> list[Outcome]:
    return halved(found, goals, by_formula, **more)


def halved(
    found: Sequence[Candidate], goals: Goals, formula: Evaluate, first: int = 3, most: int = 12, **more: Any
) -> list[Outcome]:
    outcomes = [Outcome(each) for each in found]
    with evaluation(1, formula) as evaluate:
        halve(outcomes, goals, evaluate, first, most, **more)
    return outcomes


def outcome(number: int, throughput: Sequence[float], ttft: Sequence[float], attained: float = 1.0) -> Outcome:
    values: list[Values] = [
        {"throughput_tps": first, "ttft_p95_ms": second, "slo_attainment": attained}
        for first, second in zip(throughput, ttft, strict=True)
    ]
    return Outcome(Candidate(number, {"gamma": number}, NO_MATTER), values)


# The space.


def test_candidates_are_all_combinations_of_values_and_variants(fleet: Path) -> None:
    variants = {"few": {"devices.drafters[laptop].count": 2}, "many": {"devices.drafters[laptop].count": 9}}
    found, complaints = candidates(Space({"router": ["jsq", "random"], "gamma": [2, 4]}, variants), fleet)
    assert complaints == [] and len(found) == 8
    assert found[-1].label == "variant=many, router=random, gamma=4"
    assert (found[-1].configuration.devices.drafters[0].count, found[-1].configuration.router) == (9, "random")


def test_each_combination_that_cannot_run_is_named(fleet: Path) -> None:
    found, complaints = candidates(Space({"router": ["jsq", "jqs"], "gamma": [4, 0]}, {}), fleet)
    assert [each.label for each in found] == ["router=jsq, gamma=4"]
    names = ["router=jsq, gamma=0", "router=jqs, gamma=4", "router=jqs, gamma=0"]
    assert [each.partition(": ")[0] for each in complaints] == names
    assert "no policy 'jqs'" in complaints[1]


@pytest.mark.parametrize(
    ("given", "key", "values"),
    [
        ("router=jsq,wjsq", "router", ["jsq", "wjsq"]),
        ("gamma=2,auto", "gamma", [2, "auto"]),
        ("devices.drafters[laptop].count=10", "devices.drafters[laptop].count", [10]),
        ("connections[0]={link: wan}, {link: metro}", "connections[0]", [{"link": "wan"}, {"link": "metro"}]),
    ],
)
def test_a_flag_names_a_key_and_its_values(given: str, key: str, values: list[Any]) -> None:
    assert parse_vary(given) == (key, values)


@pytest.mark.parametrize("given", ["router", "router=", "=2", "gamma=[1"])
def test_a_flag_without_values_is_refused(given: str) -> None:
    with pytest.raises(BadSearch, match="--vary"):
        parse_vary(given)


def test_a_space_or_an_objective_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(BadSearch, match="nothing varies"):
        Space({}, {})
    with pytest.raises(BadSearch, match="has a value twice"):
        Space({"gamma": [2, 2]}, {})
    with pytest.raises(BadSearch, match="in the variant 'few'"):
        Space({"gamma": [2, 4]}, {"few": {"gamma": 1}})
    for names, message in (
        (["throughput_tsp"], "did you mean throughput_tps"),
        (["utilisation"], "neither better"),
        ([], "at least one"),
        (["fairness", "fairness"], "twice"),
    ):
        with pytest.raises(BadSearch, match=message):
            Goals.of(names)


# Dominance.


def test_a_candidate_dominates_if_it_is_better_in_one_objective_and_not_worse_in_the_other() -> None:
    good, fast, slow = outcome(1, [10, 12], [5, 6]), outcome(2, [8, 10], [4, 5]), outcome(3, [8, 10], [6, 7])
    assert dominates(good, slow, GOALS) and dominates(fast, slow, GOALS)
    assert not dominates(good, fast, GOALS) and not dominates(fast, good, GOALS) and not dominates(good, good, GOALS)


def test_it_dominates_surely_if_the_paired_difference_leaves_no_room_for_the_opposite() -> None:
    loads = [0.0, 50.0, -30.0, 80.0]
    worse = outcome(1, [100 + load for load in loads], [10.0] * 4)
    better = outcome(2, [101 + load for load in loads], [10.0] * 4)  # less than the loads vary, but each time
    chance = outcome(3, [104 + load * wide for load, wide in zip(loads, (1, 0.8, 1.4, 1.1), strict=True)], [10.0] * 4)
    assert surely_dominates(better, worse, GOALS)
    assert not surely_dominates(chance, worse, GOALS)


def test_within_the_service_levels_comes_before_all_else() -> None:
    goals = Goals.of(["throughput_tps"], 0.95)
    inside, outside = outcome(1, [5, 5], [1, 1], 0.97), outcome(2, [9, 9], [1, 1], 0.9)
    nothing = outcome(3, [float("nan"), 9], [1, 1], 1.0)
    assert surely_dominates(inside, outside, goals) and surely_dominates(inside, nothing, goals)
    assert not surely_dominates(outside, inside, goals)
    assert ranked([nothing, outside, inside], goals)[0] is inside


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=8))
def test_a_candidate_is_on_the_front_exactly_if_no_other_dominates_it(points: list[tuple[int, int]]) -> None:
    outcomes = [outcome(number, [x, x], [y, y]) for number, (x, y) in enumerate(points)]
    front = [point for each, point in zip(outcomes, points, strict=True) if is_on_front(each, outcomes, GOALS)]
    assert front == [(x, y) for x, y in points if not any(a >= x and b <= y and (a, b) != (x, y) for a, b in points)]


# The rule.


def test_halving_keeps_the_front_and_drops_what_is_surely_worse(fleet: Path) -> None:
    outcomes = searched(made(fleet, 1, 2, 3, 4, 5, 6, 7, 8))
    assert [is_on_front(each, outcomes, GOALS) for each in outcomes] == [True] * 6 + [False] * 2
    dropped = [each for each in outcomes if each.dropped is not None]
    assert [each.candidate.choice[COUNT] for each in dropped] == [7, 8]  # 6 has as many tokens, sooner
    assert all((len(each.replications) < 12) == (each in dropped) for each in outcomes)


def test_with_one_objective_each_round_drops_the_worse_half(fleet: Path) -> None:
    outcomes = searched(made(fleet, 1, 2, 3, 4, 5, 6), Goals.of(["throughput_tps"]))
    assert [len(each.replications) for each in outcomes] == [3, 3, 3, 6, 12, 12]
    assert state(outcomes[4], outcomes, Goals.of(["throughput_tps"])) == "6 is better"


def test_what_differs_by_chance_is_not_dropped_and_a_round_beyond_the_budget_does_not_begin(fleet: Path) -> None:
    def alike(configuration: Configuration, seed: int) -> Values:
        own = random.Random(f"{seed}/{configuration.devices.drafters[0].count}").gauss(0, 1)
        return dict.fromkeys(MEASURES, own)

    found, one = made(fleet, 6, 7, 8), Goals.of(["throughput_tps"])
    assert [each.dropped for each in halved(found, one, alike)] == [None] * 3
    assert [len(each.replications) for each in halved(found, one, alike, budget=20)] == [6] * 3
    with pytest.raises(BadSearch, match="the budget is 20"):
        check_budget(8, 3, 12, 20)
    with pytest.raises(BadSearch, match="at least 2"):
        check_budget(8, 1, 12, None)


def test_replications_of_one_number_have_one_seed_in_all_candidates(fleet: Path) -> None:
    seeds: dict[int, list[int]] = {}

    def noted(configuration: Configuration, seed: int) -> Values:
        seeds.setdefault(configuration.devices.drafters[0].count, []).append(seed)
        return by_formula(configuration, seed)

    halved(made(fleet, 6, 7), Goals.of(["throughput_tps"]), noted, 2, 2)
    assert seeds[6] == seeds[7] and len(set(seeds[6])) == 2


def test_results_do_not_depend_on_the_number_of_processes(fleet: Path) -> None:
    asked: list[Job] = [(each.configuration, number) for each in made(fleet, 2, 4) for number in range(2)]
    with evaluation(1) as alone, evaluation(2) as together:
        assert repr([*alone(asked)]) == repr([*together(asked)])


# What is shown.


def test_the_difference_from_the_best_is_paired_so_the_load_that_both_have_drops_out() -> None:
    loads = [0.0, 50.0, -30.0, 80.0]
    worse = outcome(1, [100 + load for load in loads], [10.0] * 4)
    better = outcome(2, [102 + load for load in loads], [12.0] * 4)
    beyond = outcome(3, [900.0] * 4, [1.0] * 4, attained=0.5)
    goals = Goals.of(["throughput_tps", "ttft_p95_ms"], 0.95)
    shown = table([worse, better, beyond], goals)
    assert shown.headings[3] == shown.headings[5] == "from the best"
    assert {row[1]: (row[3], row[5]) for row in shown.rows} == {
        "1": ("-2.00 ± 0", "-"),
        "2": ("-", "+2.00 ± 0"),
        "3": ("+773 ± 78.5", "-9.00 ± 0"),  # misses the promise, so it is not the best
    }
    head, first, *_ = rows([worse, better, beyond], goals)
    assert first[head.index("throughput_tps_from_best")] == "-2.0"


def test_tables_pages_and_files_show_the_state_of_each(fleet: Path) -> None:
    goals = Goals.of(["throughput_tps", "ttft_p95_ms"], 0.95)
    outcomes = searched(made(fleet, 6, 7, 2, 9), goals)
    states = [state(each, outcomes, goals) for each in outcomes]
    assert states == ["Pareto", "1 is better, dropped in round 1", "Pareto", "1 is better, dropped in round 1"]
    assert [row[0] for row in table(outcomes, goals).rows] == ["1", "3", "2", "4"]
    written = page("Search", ["said"], outcomes, goals)
    assert written.count("<svg") == 4 and "<script" not in written and "1 is better" in written
    head, *lines = rows(outcomes, goals)
    assert head[:5] == ["candidate", COUNT, "replications", "pareto", "state"]
    assert [line[3] for line in lines] == [True, False, True, False]
    assert len({len(line) for line in (head, *lines)}) == 1


def test_a_plot_in_characters_covers_no_point_that_comes_first() -> None:
    lines = plotted([(10.0, 5.0, "[1]"), (10.0, 5.0, "2"), (0.0, 0.0, "3"), (float("nan"), 1.0, "4")], "x", "y")
    assert lines[1].endswith("[1]") and lines[-3].startswith("  |3")
    assert not any(label in "".join(lines[1:-1]) for label in "24")


# The file, and the command.


def test_a_search_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    file.write_text("space: {gamma: [2, auto]}\nobjectives: [goodput_rps]\nattainment: 0.9\n", encoding="utf-8")
    found = read_search(file)
    assert (found.space, found.attainment, found.first, found.most) == ({"gamma": [2, "auto"]}, 0.9, 3, 12)
    for text, message in (
        ("spaces: {}", "did you mean space"),
        ("method: random", "method"),
        ("- 1", "has no keys"),
        ("space: [", "is not YAML"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(BadSearch, match=message):
            read_search(file)


def test_the_command_compares_small_fleets(fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells, html = tmp_path / "s.csv", tmp_path / "s.html"
    asked = ["search", str(fleet), "--vary", "gamma=2,4", "--first=2", "--most=2", "--jobs=1"]
    assert command_line.run([*asked, f"--csv={cells}", f"--page={html}"]) == 0
    shown = capsys.readouterr()
    assert "Pareto" in shown.out and "round 1: 2 candidates, 2 replications each" in shown.err
    with cells.open(encoding="utf-8", newline="") as file:
        assert [row["gamma"] for row in csv.DictReader(file)] == ["2", "4"]
    assert html.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_page_has_a_chart_over_a_key_that_varies_alone_and_has_numbers(fleet: Path) -> None:
    several = searched(made(fleet, 2, 4, 6))
    assert f"throughput, tokens/s over {COUNT}" in page("s", [], several, GOALS)
    words = [Outcome(Candidate(1, {"router": "jsq"}, NO_MATTER), several[0].replications)]
    assert " over router" not in page("s", [], words, GOALS)


def test_a_file_compares_variants_that_change_several_keys_at_once(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, cells = tmp_path / "search.yaml", tmp_path / "s.csv"
    file.write_text(
        "variants:\n"
        "  two_big: {devices.verifiers.big.count: 2, mode: remote}\n"
        "  one_fused:\n"
        "    mode: fused\n"
        "    devices.verifiers.big.draft: {cost: {law: linear, decode_ms: 1}, agreement: 0.8}\n"
        "  as_it_is: {}\n"
        "method: grid\n"
        "most: 2\n",
        encoding="utf-8",
    )
    assert command_line.run(["search", str(fleet), f"--search={file}", f"--csv={cells}", "--jobs=1"]) == 0
    with cells.open(encoding="utf-8", newline="") as lines:
        assert [row["variant"] for row in csv.DictReader(lines)] == ["two_big", "one_fused", "as_it_is"]
    assert "one_fused" in capsys.readouterr().out


def test_a_flag_out_of_its_range_is_refused_before_anything_runs(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(["search", str(fleet), "--vary=gamma=2,4", "--attainment=95"]) == 1
    assert capsys.readouterr().err == "simulator: the flags: attainment: Input should be less than or equal to 1\n"


@pytest.mark.parametrize(("ended", "runs"), [(0, []), (2, ["1", "1"]), (7, ["3", "2", "2"])])
def test_what_is_interrupted_shows_what_came_before(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ended: int, runs: Sequence[str]
) -> None:
    @contextmanager
    def interrupted(jobs: int) -> Iterator[EvaluateAll]:
        def evaluate(asked: Sequence[Job]) -> Iterator[Values]:
            for configuration, number in asked[:ended]:
                yield by_formula(configuration, number)
            raise KeyboardInterrupt

        yield evaluate

    monkeypatch.setattr("lab.simulator.commands.search.evaluation", interrupted)
    asked = ["search", str(fleet), f"--vary={COUNT}=2,4,6", "--first=4", "--most=4", "--jobs=1"]
    assert command_line.run([*asked, f"--csv={fleet.parent / 's.csv'}"]) == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("simulator: interrupted")
    found = []
    if runs:
        with (fleet.parent / "s.csv").open(encoding="utf-8", newline="") as lines:
            found = [row["replications"] for row in csv.DictReader(lines)]
    assert found == [*runs]


def test_sigterm_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("specpair.command_line.start.run", lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        with pytest.raises(KeyboardInterrupt):
            __main__.main()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_command_names_all_that_cannot_run_before_anything_runs(
    fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(["search", str(fleet), "--vary", "gamma=4,0,99"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[:2] for line in lines[:2]] == [["simulator", "cannot run"]] * 2
    assert "2 of 3 combinations cannot run" in lines[-1]
