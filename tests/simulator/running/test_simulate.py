"""A configuration runs: the same seed gives the same records, and keys make a difference."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from simulator import command_line
from simulator.configuration.configuration import Configuration
from simulator.configuration.example import example
from simulator.configuration.reading import parse
from simulator.fleet.observer import Sample
from simulator.fleet.record import Record
from simulator.running.simulate import seed_of, simulate
from tests.paths import ROOT

SMALL = """\
sim_time_ms: 4000
mode: target
devices:
  verifiers:
    - {name: big, count: 2, cost: {law: linear, decode_ms: 25}}
workload: {arrival: poisson, rate_rps: 4, prompt_tokens: 9, output_tokens: 5}
"""


class Kept:
    """All that an observer is told."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.samples: list[Sample] = []

    def record(self, record: Record) -> None:
        self.records.append(record)

    def sample(self, samples: Sequence[Sample]) -> None:
        self.samples += samples


def configured(text: str, folder: Path = ROOT) -> Configuration:
    return parse(text, "f.yaml", folder)


def ran(configuration: Configuration, replication: int = 0) -> Kept:
    kept = Kept()
    simulate(configuration, seed_of(configuration, replication), kept)
    return kept


def test_the_same_seed_gives_the_same_records_and_another_one_others() -> None:
    configuration = configured(SMALL)
    first = ran(configuration)
    assert [asdict(each) for each in ran(configuration).records] == [asdict(each) for each in first.records]
    assert [asdict(each) for each in ran(configuration, 1).records] != [asdict(each) for each in first.records]
    assert {each.node for each in first.samples} == {"big-1", "big-2"}
    assert max(each.at for each in first.samples) == 4.0


def test_the_example_runs_as_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(example().replace("sim_time_ms: 60000", "sim_time_ms: 8000"), encoding="utf-8")
    assert command_line.main(["run", str(file)]) == 0
    assert "requests" in capsys.readouterr().out
