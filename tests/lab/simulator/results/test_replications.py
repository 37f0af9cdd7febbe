"""Replications: the same whatever the processes, and their files."""

import csv
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.reading import parse
from lab.simulator.results import files
from lab.simulator.results.replications import evaluation, replicated
from lab.simulator.simulation import Stopped
from tests.paths import ROOT

FILE = """
sim_time_ms: 6000
burn_in_ms: 500
seed: 3
replications: 2
mode: target
devices:
  verifiers: [{name: big, count: 2, cost: {law: linear, decode_ms: 25}}]
workload: {arrival: poisson, rate_rps: 6, prompt_tokens: 20, output_tokens: 12, tenants: [{name: chat}, {name: code}]}
slo: {ttft_ms: 100}
"""


@pytest.fixture(scope="module")
def configuration() -> Configuration:
    return parse(FILE, "fleet.yaml", Path())


def test_results_and_files_are_the_same_whatever_the_processes(configuration: Configuration, tmp_path: Path) -> None:
    found, contents = [], []
    for jobs in (1, 2):
        folder = tmp_path / str(jobs)
        folder.mkdir()
        seconds: list[float] = []
        found.append(replicated(configuration, jobs=jobs, folder=folder, progress=seconds.append))
        contents.append({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
        assert seconds == sorted(seconds) and seconds[-1] == pytest.approx(12, abs=0.5)
    assert json.dumps([*map(asdict, found[0])]) == json.dumps([*map(asdict, found[1])])
    assert contents[0] == contents[1] and {"requests-1.csv", "requests-2.csv"} <= {*contents[0]}
    assert found[0][0].measures != found[0][1].measures, "each has a chance of its own"


def test_evaluations_do_not_depend_on_the_number_of_processes(configuration: Configuration) -> None:
    asked = [(configuration, 0), (configuration.model_copy(update={"router": "random"}), 1)]
    with evaluation(1) as alone, evaluation(2) as together:
        assert repr([*alone(asked)]) == repr([*together(asked)])


def test_an_error_of_a_process_is_that_of_the_run(configuration: Configuration) -> None:
    wrong = configuration.model_copy(update={"router": "nobody:Nothing"})
    with pytest.raises(ValueError, match="nobody"):
        replicated(wrong, jobs=2)


def test_a_file_has_a_line_for_each_request(configuration: Configuration, tmp_path: Path) -> None:
    [_, second] = replicated(configuration, folder=tmp_path)
    with (tmp_path / "requests-2.csv").open(encoding="utf-8", newline="") as file:
        requests = [*csv.DictReader(file)]
    assert [*requests[0]] == [*files.REQUESTS] and {each["replication"] for each in requests} == {"2"}
    whole = [each for each in requests if each["status"] == "whole" and float(each["sent_s"]) >= 0.5]
    assert len(whole) == second.measures["whole"]
    text = (ROOT / "docs" / "simulator-results.md").read_text(encoding="utf-8")
    assert not [name for name in files.REQUESTS if f"`{name}`" not in text]


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_is_stopped_has_what_came_until_then(configuration: Configuration, jobs: int) -> None:
    def progress(seconds: float) -> None:
        if seconds >= 3.0:
            raise Stopped

    found = replicated(configuration.model_copy(update={"replications": 8}), jobs=jobs, progress=progress)
    assert len(found) < 8 and all(each.seconds <= 6.0 for each in found)
    assert jobs == 2 or (len(found) == 1 and found[0].seconds == 3.0)
    assert found[0].measures["throughput_tps"] > 0
