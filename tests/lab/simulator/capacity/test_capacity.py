"""Promises, sizes, trials, the answer and the command, with formulas in place of a simulation where one is needed."""

import csv
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator import command_line
from lab.simulator.capacity.answer import rows, sentences, table
from lab.simulator.capacity.bisection import Range, bisect
from lab.simulator.capacity.page import page
from lab.simulator.capacity.picture import draw
from lab.simulator.capacity.promise import Bound, attainment, is_sure, judged, keeps, parse_bound
from lab.simulator.capacity.size import apportioned, size_of
from lab.simulator.capacity.trials import Trials, check_replications
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.operation import Slo
from lab.simulator.configuration.reading import parse
from lab.simulator.results.measures import MEASURES
from lab.simulator.results.report.picture import NoPicture
from lab.simulator.search.evaluation import Job, Values
from lab.simulator.search.outcomes import Outcome
from lab.simulator.search.space import BadSearch, Candidate

FLEET = """\
sim_time_ms: 300
mode: lockstep
gamma: 4
devices:
  verifiers:
    - {name: big, count: 2, cost: {law: linear, decode_ms: 5}}
  drafters:
    - {name: laptop, count: 4, cost: {law: linear, decode_ms: 1}, agreement: 0.8}
    - {name: phone, count: 2, cost: {law: linear, decode_ms: 1}, agreement: 0.8}
workload: {arrival: deterministic, rate_rps: 60, prompt_tokens: 8, output_tokens: 6}
slo: {ttft_ms: 100}
"""
BOUND = attainment(0.95)


def configured(*changes: tuple[str, str]) -> Configuration:
    text = FLEET
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse(text, "fleet.yaml", Path())


FLEET_OF_TEXT = configured()
CLOSED = ("arrival: deterministic, rate_rps: 60", "arrival: closed, users: 9")


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET, encoding="utf-8")
    return file


def outcome(*values: float, name: str = "slo_attainment") -> Outcome:
    requests = {"whole": 200.0, name: 1.0}
    return Outcome(
        Candidate(1, {}, FLEET_OF_TEXT), [dict.fromkeys(MEASURES, 1.0) | requests | {name: each} for each in values]
    )


def trials(formula: Callable[[int, random.Random], float], first: int = 3, most: int = 12) -> Trials:
    """`formula`: the attainment at a count."""
    size = size_of(FLEET_OF_TEXT)

    def evaluate(asked: Sequence[Job]) -> list[Values]:
        counts = [sum(kind.count for kind in each.devices.drafters) for each, _ in asked]
        found = [formula(count, random.Random(f"{count}/{n}")) for count, (_, n) in zip(counts, asked, strict=True)]
        return [
            dict.fromkeys(MEASURES, math.nan)
            | {"slo_attainment": each, "ttft_p95_ms": 2.0 * count, "throughput_tps": 10.0 * count}
            | {"whole": 200.0, "aborted": 0.0}
            for count, each in zip(counts, found, strict=True)
        ]

    def made(count: int) -> Candidate:
        parts = apportioned(count, [4, 2])
        drafters = [
            kind.model_copy(update={"count": part})
            for kind, part in zip(FLEET_OF_TEXT.devices.drafters, parts, strict=True)
        ]
        devices = FLEET_OF_TEXT.devices.model_copy(update={"drafters": drafters})
        return Candidate(count, size.changes(count), FLEET_OF_TEXT.model_copy(update={"devices": devices}))

    return Trials(size, made, [BOUND], evaluate, first, most)


# Promises.


def test_a_bound_is_kept_by_the_mean_and_surely_by_the_whole_interval() -> None:
    for values, kept, sure in (
        ([0.97, 0.98, 0.975], True, True),
        ([0.9, 1.0, 0.99], True, False),
        ([0.80, 0.81, 0.805], False, True),
        ([0.85, 0.99, 0.9], False, False),
        ([0.99], True, False),
        ([1.0, 1.0], True, True),
        ([math.nan, math.nan], False, False),
    ):
        found = judged(BOUND, outcome(*values))
        assert (found.kept, found.sure) == (kept, sure), values


def test_of_a_few_requests_all_within_the_promise_it_takes_more_to_be_sure() -> None:
    for requests, sure in ((10.0, False), (30.0, False), (80.0, True)):
        few = outcome(1.0, 1.0)
        few.replications = [{**each, "whole": requests / 2, "aborted": 0.0} for each in few.replications]
        found = judged(BOUND, few)
        assert found.kept and found.sure is sure
    assert 1 - (judged(BOUND, few).found.low or 0) == pytest.approx(1 - 0.025 ** (1 / 80))


def test_bounds_of_both_directions_are_parsed_and_judged() -> None:
    slow = parse_bound("ttft_p95_ms<=1500")
    assert slow == Bound(MEASURES["ttft_p95_ms"], 1500.0, at_most=True)
    assert parse_bound(" throughput_tps >= 5e2 ").asked == "at least 500 tokens/s"
    late = judged(slow, outcome(1600, 1610, name="ttft_p95_ms"))
    assert (late.kept, late.sure, late.excess) == (False, True, 105.0)
    good, bad = judged(slow, outcome(1, 2, name="ttft_p95_ms")), judged(slow, outcome(1400, 1700, name="ttft_p95_ms"))
    assert keeps([good]) and not keeps([good, bad]) and is_sure([good]) and not is_sure([good, bad])
    assert is_sure([late, bad]), "one that is surely broken is enough"


@pytest.mark.parametrize("given", ["ttft_p95_ms", "ttft_p95_ms<=x", "ttft_p95_ms<=nan", "ttft_p95_ms<1", "<=1"])
def test_what_is_no_bound_is_refused(given: str) -> None:
    with pytest.raises(BadSearch, match="is no bound of a measure"):
        parse_bound(given)


def test_promises_that_cannot_be_judged_are_refused() -> None:
    with pytest.raises(BadSearch, match="did you mean ttft_p95_ms"):
        parse_bound("tfft_p95_ms<=1")
    for share in (0.0, 95.0, math.nan):
        with pytest.raises(BadSearch, match="no share"):
            attainment(share)
    for first, most in ((1, 1), (4, 3)):
        with pytest.raises(BadSearch, match="--most"):
            check_replications(first, most)


# Sizes.


def test_drafters_of_all_kinds_grow_together_with_the_load() -> None:
    size = size_of(FLEET_OF_TEXT)
    assert (size.start, size.floor, size.wanted) == (6, 2, "most")
    assert size.changes(12) == {
        "devices.drafters[laptop].count": 8,
        "devices.drafters[phone].count": 4,
        "workload.rate_rps": 120.0,
    }
    assert size_of(configured(CLOSED)).changes(4)["workload.users"] == 6


def test_drafters_of_one_kind_bring_their_share_and_verifiers_none() -> None:
    size = size_of(FLEET_OF_TEXT, "devices.drafters.phone.count")
    assert size.start == 2 and size.changes(5) == {"devices.drafters.phone.count": 5, "workload.rate_rps": 90.0}
    by_number = size_of(FLEET_OF_TEXT, "devices.drafters[1].count")
    assert by_number.changes(2) == {"devices.drafters[1].count": 2, "workload.rate_rps": 60.0}
    verifiers = size_of(FLEET_OF_TEXT, "devices.verifiers[big].count")
    assert (verifiers.start, verifiers.wanted) == (2, "least")
    assert verifiers.changes(3) == {"devices.verifiers[big].count": 3}
    assert size_of(FLEET_OF_TEXT, "devices.verifiers.big.slots").start == 8, "a default"


def test_a_rate_grows_in_steps_and_users_one_by_one() -> None:
    rate = size_of(FLEET_OF_TEXT, "workload.rate_rps")
    assert rate.start == 20 and rate.changes(21) == {"workload.rate_rps": 63.0}
    assert size_of(FLEET_OF_TEXT, "workload.rate_rps", 0.1).changes(3) == {"workload.rate_rps": 0.3}
    assert size_of(configured(CLOSED), "workload.users").changes(3) == {"workload.users": 3}
    alone = configured(CLOSED, ("lockstep", "target")).model_copy(
        update={"devices": FLEET_OF_TEXT.devices.model_copy(update={"drafters": []})}
    )
    assert size_of(alone).name == "workload.users"


@pytest.mark.parametrize(
    ("key", "step", "said"),
    [
        ("router", None, "no count"),
        ("seed", None, "no count"),
        ("sim_time_ms", None, "no count"),
        ("devices.drafters.laptop.name", None, "no count"),
        ("devices.drafters", None, "no count"),
        ("devices.drafters.phnoe.count", None, "did you mean phone"),
        ("devices.drafters.phone.counts", None, "did you mean count"),
        ("workload.rate_rps.x", None, "no key 'x'"),
        ("workload.rate_rps", 0.0, "not above 0"),
        ("devices.drafters.phone.count", 2.0, "its step is 1"),
    ],
)
def test_a_key_that_cannot_be_counted_is_refused(key: str, step: float | None, said: str) -> None:
    with pytest.raises(BadSearch, match=said):
        size_of(FLEET_OF_TEXT, key, step)


def test_recorded_conversations_do_not_grow(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text("", encoding="utf-8")
    text = FLEET.replace(
        "arrival: deterministic, rate_rps: 60, prompt_tokens: 8, output_tokens: 6",
        "arrival: conversations, conversations_path: c.jsonl",
    )
    with pytest.raises(BadSearch, match="recorded conversations do not grow"):
        size_of(parse(text, "fleet.yaml", tmp_path))


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(0, 60))
def test_parts_are_in_proportion_and_none_shrinks_as_the_whole_grows(weights: list[int], more: int) -> None:
    count = len(weights) + more
    parts, grown = apportioned(count, weights), apportioned(count + 1, weights)
    assert sum(parts) == count and min(parts) >= 1
    assert all(part <= other for part, other in zip(parts, grown, strict=True))
    assert apportioned(3 * sum(weights), weights) == [3 * weight for weight in weights]


# Trials and the answer.


def test_a_count_within_chance_runs_twice_as_often_until_it_is_clear_or_the_limit() -> None:
    noisy = trials(lambda count, rng: 0.96 + rng.uniform(-0.03, 0.03))
    clear = trials(lambda count, rng: 0.99)
    never = trials(lambda count, rng: rng.choice([0.9, 1.0]))
    assert [each.holds(6) for each in (noisy, clear)] == [True, True]
    never.holds(6)
    runs = [len(each.by_count[6].outcome.replications) for each in (noisy, clear, never)]
    assert runs[1:] == [3, 12] and runs[0] in (6, 12)
    assert never.by_count[6].state.endswith(", within chance")


def test_the_answer_says_what_holds_and_what_breaks_first() -> None:
    found = trials(lambda count, rng: 1.0 if count <= 20 else 0.9)
    bisect(found.holds, Range(6, 2, 100))
    inside, outside = sentences(found, Slo(ttft_ms=40), 100)
    assert inside.startswith("The most that keeps the promise: 20 drafters (devices.drafters[laptop].count=13, ")
    assert "SLO attainment 100.0 % (99.4 % to 100.0 %), at least 95.0 % is asked" in inside
    assert outside == (
        "What breaks first, at 21 drafters: SLO attainment 90.0 % ± 0.0 %, 5.0 points below the 95.0 % that are asked: "
        "TTFT p95 is 42.0 ms, 2.00 ms above the 40 of slo."
    )
    shown, cells = table(found), [*rows(found)]
    assert [row[0] for row in shown.rows] == [str(each.count) for each in found.in_order]
    assert shown.headings[:4] == (
        "drafters",
        "devices.drafters[laptop].count",
        "devices.drafters[phone].count",
        "workload.rate_rps",
    )
    assert shown.rows[-1][-1] == "breaks" and len({len(row) for row in cells}) == 1
    html = page("Capacity", [inside, outside], found)
    assert html.count("<figure") == 3 and "<script" not in html and "utilisation" in html


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        (lambda count: 1.0, "Nothing breaks up to 50 drafters"),
        (lambda count: 0.5, "No count that was tried keeps the promise, 2 drafters, 3 drafters, 6 drafters"),
        (lambda count: 1.0 if count <= 20 and count != 4 else 0.5, "4 drafters breaks, though 6 drafters holds"),
        (lambda count: math.nan, "which has no value"),
    ],
)
def test_the_answer_says_what_is_odd(formula: Callable[[int], float], said: str) -> None:
    found = trials(lambda count, rng: formula(count))
    bisect(found.holds, Range(6, 2, 50), checks=4)
    assert said in " ".join(sentences(found, Slo(), 50))


def test_aborted_requests_are_named_where_no_bound_of_slo_is_broken() -> None:
    found = trials(lambda count, rng: 0.9)
    found.holds(6)
    for values in found.by_count[6].outcome.replications:
        assert isinstance(values, dict)
        values |= {"whole": 90.0, "aborted": 10.0}
    assert "10.0 % were aborted" in " ".join(sentences(found, Slo(ttft_ms=40), 50))


# The command.


def test_the_command_finds_how_much_a_small_fleet_carries(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells, html = tmp_path / "c.csv", tmp_path / "c.html"
    asked = ["capacity", str(fleet), "--of=workload.rate_rps", "--bound=tpot_p95_ms<=12", "--up-to=80", "--checks=0"]
    assert command_line.run([*asked, "--jobs=1", "--first=2", "--most=2", f"--csv={cells}", f"--page={html}"]) == 0
    shown = capsys.readouterr()
    assert "that keeps the promise" in shown.out and "simulator: workload.rate_rps=60.0: " in shown.err
    with cells.open(encoding="utf-8", newline="") as file:
        lines = [*csv.DictReader(file)]
    assert {"workload.rate_rps", "holds", "tpot_p95_ms", "tpot_p95_ms_low"} <= {*lines[0]}
    assert html.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_curves_are_drawn_where_matplotlib_is(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = trials(lambda count, rng: 1.0 if count <= 20 else 0.9)
    bisect(found.holds, Range(6, 2, 100))
    draw("$a^$ {x}", found, tmp_path / "c.png")  # matplotlib must not read it as a formula
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(NoPicture, match="cannot be written"):
        draw("", found, tmp_path / "no" / "c.png")


def test_an_interrupted_command_tells_what_was_tried(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: Trials, count: int, real: Callable[[Trials, int], bool] = Trials.holds) -> bool:
        if self.by_count:
            raise KeyboardInterrupt
        return real(self, count)

    monkeypatch.setattr(Trials, "holds", interrupted)
    assert command_line.run(["capacity", str(fleet), "--jobs=1"]) == 130
    shown = capsys.readouterr()
    assert "It ended early" in shown.out and shown.err.splitlines()[-1] == "simulator: interrupted"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--of=router"], ", no count: name one such as devices.drafters.laptop.count"),
        (["--attainment=95"], "no share"),
        (["--bound=ttft<=1"], "no measure 'ttft'"),
        (["--start=1"], "--start is 1"),
        (["--up-to=3"], "--start is 6"),
        (["--checks=-1"], "0 or more"),
        (["--set=slo.ttft_ms=null"], "promises nothing: give one of the keys slo.ttft_ms"),
    ],
)
def test_bad_input_is_told_in_one_line(
    fleet: Path, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(["capacity", str(fleet), *flags]) == 1
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1
