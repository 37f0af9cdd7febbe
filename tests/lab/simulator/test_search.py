"""The search: its space, what it shows; with a fleet of formulas in place of a simulation where one is needed."""

import csv
import signal
from pathlib import Path

import pytest

from lab.simulator import __main__, command_line
from lab.simulator.search.comparison import (
    BadSearch,
    SearchKeys,
    candidates,
    read_search,
)
from tests.lab.simulator.fleets import SMALL_FLEET as FLEET

COUNT = "devices.drafters[laptop].count"


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET, encoding="utf-8")
    return file


# The space.


def test_candidates_are_all_combinations_of_values_and_variants(fleet: Path) -> None:
    variants = {"few": {COUNT: 2}, "many": {COUNT: 9}}
    keys = SearchKeys(space={"router": ["jsq", "random"], "gamma": [2, 4]}, variants=variants)
    found, complaints = candidates(keys, fleet)
    assert complaints == [] and len(found) == 8
    assert found[-1].choice == {"variant": "many", "router": "random", "gamma": 4}
    assert (found[-1].configuration.devices.drafters[0].count, found[-1].configuration.router) == (9, "random")


def test_a_space_or_an_objective_that_makes_no_sense_is_refused() -> None:
    for keys, message in (
        (SearchKeys(), "nothing varies"),
        (SearchKeys(space={"gamma": [2, 2]}), "has a value twice"),
        (SearchKeys(space={"gamma": [2, 4]}, variants={"few": {"gamma": 1}}), "in the variant 'few'"),
    ):
        with pytest.raises(BadSearch, match=message):
            keys.choices()
    for names, message in (
        (["throughput_tsp"], "did you mean throughput_tps"),
        (["utilisation"], "neither better"),
        ([], "at least one"),
        (["acceptance", "acceptance"], "twice"),
    ):
        with pytest.raises(BadSearch, match=message):
            SearchKeys(objectives=names).goals()


# What is shown.


# The file, and the command.


def test_a_search_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    file.write_text("space: {gamma: [2, auto]}\nobjectives: [goodput_rps]\nattainment: 0.9\n", encoding="utf-8")
    found = read_search(file)
    assert (found.space, found.attainment, found.replications) == ({"gamma": [2, "auto"]}, 0.9, 5)
    for text, message in (
        ("spaces: {}", "did you mean space"),
        ("replications: 1", "replications"),
        ("- 1", "has no keys"),
        ("space: [", "is not YAML"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(BadSearch, match=message):
            read_search(file)


def test_the_command_compares_variants_that_change_several_keys_at_once(
    fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, cells = tmp_path / "search.yaml", tmp_path / "s.csv"
    file.write_text(
        "variants:\n"
        "  two_big: {devices.verifiers.big.count: 2, mode: remote}\n"
        "  one_fused:\n"
        "    gamma: auto\n"
        "    mode: fused\n"
        "    devices.verifiers.big.draft: {cost: {law: linear, decode_ms: 1}, agreement: 0.8}\n"
        "  as_it_is: {}\n"
        "replications: 2\n",
        encoding="utf-8",
    )
    asked = ["search", str(fleet), f"--search={file}", "--jobs=1"]
    assert command_line.run([*asked, f"--csv={cells}"]) == 0
    with cells.open(encoding="utf-8", newline="") as lines:
        assert [row["variant"] for row in csv.DictReader(lines)] == ["two_big", "one_fused", "as_it_is"]
    shown = capsys.readouterr().out
    assert "one_fused" in shown and "from the best" in shown


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--vary=gamma=2,4", "--attainment=95"], ["the flags: attainment: Input should be less than or equal to 1"]),
        (
            ["--vary=gamma=4,0,99"],
            ["cannot run: gamma=0: ", "cannot run: gamma=99: ", "2 of 3 combinations"],
        ),
    ],
)
def test_what_cannot_run_is_told_before_anything_runs(
    fleet: Path, flags: list[str], said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(["search", str(fleet), *flags]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(said)
    assert all(line.startswith(f"simulator: {each}") for line, each in zip(lines, said, strict=True))


def test_sigterm_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("specpair.command_line.start.run", lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        with pytest.raises(KeyboardInterrupt):
            __main__.main()
    finally:
        signal.signal(signal.SIGTERM, before)
