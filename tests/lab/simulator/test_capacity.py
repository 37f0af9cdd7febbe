"""Promises, sizes, the bisection, the answer and the command, with formulas in place of a simulation where needed."""

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator import command_line
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.reading import parse
from lab.simulator.results.measures import MEASURES
from lab.simulator.results.replications import Job, Values
from lab.simulator.search.capacity import Capacity, Size, Trial, Wanted, size_of
from lab.simulator.search.comparison import BadSearch, SearchCandidate
from tests.lab.simulator.fleets import SMALL_FLEET as FLEET

ASKED = 0.95
CLOSED = ("arrival: gamma, cv: 0.01, rate_rps: 60", "arrival: closed, users: 9")
CEILING = 1000


def configured(*changes: tuple[str, str]) -> Configuration:
    text = FLEET
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse(text, "fleet.yaml", Path())


FLEET_OF_TEXT = configured()


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET, encoding="utf-8")
    return file


def trial(*values: float, whole: float = 200.0) -> Trial:
    requests = dict.fromkeys(MEASURES, 1.0) | {"whole": whole}
    replications = [requests | {"slo_attainment": each} for each in values]
    return Trial(SearchCandidate(1, {}, FLEET_OF_TEXT, replications), ASKED)


def found(
    formula: Callable[[int, random.Random], float],
    start: int,
    size: Size | None = None,
    precision: float = 0.0,
    near: bool = False,
) -> Capacity:
    """What is found where `formula` is the attainment at a count."""
    size = size or size_of(FLEET_OF_TEXT)

    def evaluate(asked: Sequence[Job]) -> list[Values]:
        return [
            dict.fromkeys(MEASURES, 1.0) | {"slo_attainment": formula(count, random.Random(f"{count}/{number}"))}
            for number in range(len(asked))
        ]

    count = 0

    def made(asked: int) -> SearchCandidate:
        nonlocal count
        assert asked not in capacity.trials and size.floor <= asked <= CEILING, "each is tried once"
        count = asked
        return SearchCandidate(asked, size.changes(asked), FLEET_OF_TEXT)

    capacity = Capacity(size, ASKED, made, evaluate, CEILING, 3, precision)
    capacity.find(start, near=near)
    return capacity


# Promises.


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ([0.97, 0.98, 0.975], "holds"),
        ([0.9, 1.0, 0.99], "holds, within chance"),
        ([0.80, 0.81, 0.805], "breaks"),
        ([0.85, 0.99, 0.9], "breaks, within chance"),
        ([0.99], "holds, within chance"),
        ([1.0, 1.0], "holds"),
        ([math.nan, math.nan], "breaks, within chance"),
    ],
)
def test_a_promise_is_kept_by_the_mean_and_surely_by_the_whole_interval(values: list[float], state: str) -> None:
    assert trial(*values).state == state and trial(*values).holds is state.startswith("holds")


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
    assert size_of(configured(CLOSED), "workload.users").changes(3) == {"workload.users": 3}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("router", "no count"),
        ("devices.drafters.phnoe.count", "did you mean phone"),
        ("workload.rate_rps.x", "no key 'x'"),
    ],
)
def test_a_key_that_cannot_be_counted_is_refused(key: str, said: str) -> None:
    with pytest.raises(BadSearch, match=said):
        size_of(FLEET_OF_TEXT, key)


# The bisection and the answer.


@given(
    st.integers(1, CEILING),
    st.integers(0, CEILING + 1),
    st.sampled_from(["most", "least"]),
    st.floats(0, 1),
    st.booleans(),
)
def test_the_boundary_is_found_as_narrow_as_is_asked(
    start: int, at: int, wanted: Wanted, precision: float, near: bool
) -> None:
    size = Size("workload.users", 1, 1, wanted, lambda count: {"workload.users": count})

    def holds(count: int) -> bool:
        return count <= at if wanted == "most" else count > at

    tried = found(lambda count, _: float(holds(count)), start, size, precision, near).trials
    held, broken = ([count for count in tried if holds(count) is kept] for kept in (True, False))
    if held and broken:
        gap = min(broken) - max(held) if wanted == "most" else min(held) - max(broken)
        assert 0 < gap <= max(1, precision * min(*held, *broken, key=lambda count: abs(count - at)))
    else:
        assert (CEILING if bool(held) is (wanted == "most") else 1) in tried
    assert len(tried) <= 22


# The command.


def test_the_command_finds_how_much_a_small_fleet_carries(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["capacity", str(fleet), "--of=workload.rate_rps", "--set=slo.tpot_ms=12", "--start=20", "--jobs=1"]
    assert command_line.run([*asked, "--replications=2", "--precision=0.3"]) == 0
    shown = capsys.readouterr()
    assert "that keeps the promise" in shown.out and "simulator: workload.rate_rps=60.0: " in shown.err


def test_the_command_finds_the_boundary_of_each_combination(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each search begins where the one before ended."""
    asked = ["capacity", str(fleet), "--of=workload.rate_rps", "--set=slo.tpot_ms=12", "--start=20", "--jobs=1"]
    assert command_line.run([*asked, "--replications=2", "--precision=0.3", "--vary=gamma=4,1"]) == 0
    shown = capsys.readouterr()
    assert "2 of 2 combinations" in shown.out and "breaks at" in shown.out
    tried = [line.split(": ")[1] for line in shown.err.splitlines()]
    first, second = tried.index("gamma=4"), tried.index("gamma=1")
    assert first == 0 and tried[second + 1] in tried[1:second]


def test_an_interrupted_command_tells_what_was_tried(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: Capacity, count: int, real: Callable[[Capacity, int], bool] = Capacity.holds) -> bool:
        if self.trials:
            raise KeyboardInterrupt
        return real(self, count)

    monkeypatch.setattr(Capacity, "holds", interrupted)
    assert command_line.run(["capacity", str(fleet), "--jobs=1"]) == 130
    shown = capsys.readouterr()
    assert "It ended early" in shown.out and shown.err.splitlines()[-1] == "simulator: interrupted"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--of=router"], ", no count: name one such as devices.drafters.laptop.count"),
        (["--start=1"], "--start is 1"),
        (["--attainment=95"], "--attainment: 95 is no share"),
        (["--set=slo.ttft_ms=null"], "promises nothing: give one of the keys slo.ttft_ms"),
    ],
)
def test_bad_input_is_told_in_one_line(
    fleet: Path, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(["capacity", str(fleet), *flags]) == 1
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1
