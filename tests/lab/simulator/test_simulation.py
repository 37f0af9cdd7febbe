"""A configuration runs: the same seed gives the same records, and keys make a difference."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from lab.simulator import command_line
from lab.simulator.command_line import example
from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.reading import parse, read
from lab.simulator.fleet.record import Status
from lab.simulator.results.replications import seed_of, simulate
from lab.simulator.search.comparison import candidates, read_search
from tests.lab.simulator.fleets import Kept
from tests.paths import ROOT

SMALL = """\
sim_time_ms: 4000
mode: target
devices:
  verifiers:
    - {name: big, count: 2, cost: {law: linear, decode_ms: 25}}
workload: {arrival: poisson, rate_rps: 4, prompt_tokens: 9, output_tokens: 5}
"""
FUSED = """\
sim_time_ms: 3000
mode: fused
devices:
  verifiers:
    - name: big
      count: 2
      cost: {law: linear, decode_ms: 25}
      slots: 2
      draft: {cost: {law: linear, decode_ms: 4}, agreement: [0.9, 0.6]}
workload: {arrival: poisson, rate_rps: 16, prompt_tokens: 9, output_tokens: 12}
"""
EXAMPLES = sorted((ROOT / "examples" / "simulator").glob("*.yaml"))
SEARCHES = [each for each in EXAMPLES if each.stem.endswith("-search")]


def configured(text: str, folder: Path = ROOT) -> Configuration:
    return parse(text, "f.yaml", folder)


def ran(configuration: Configuration, replication: int = 0) -> Kept:
    kept = Kept()
    simulate(configuration, seed_of(configuration, replication), kept)
    return kept


def differ(one: str, other: str) -> None:
    first, second = ran(configured(one)), ran(configured(other))
    assert first.records and second.records
    assert ([asdict(each) for each in first.records], first.samples) != (
        [asdict(each) for each in second.records],
        second.samples,
    )


def test_the_example_runs_as_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(example().replace("sim_time_ms: 60000", "sim_time_ms: 8000"), encoding="utf-8")
    assert command_line.run(["run", str(file), "--output", str(tmp_path / "out"), "--jobs", "1"]) == 0
    assert (tmp_path / "out" / "report.html").is_file()
    assert "requests" in capsys.readouterr().out


def test_an_interrupted_run_keeps_the_replications_that_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def interrupted(jobs: int, do: Callable[[Configuration, int], object]) -> Iterator[object]:
        def one(asked: Sequence[tuple[Configuration, int]]) -> Iterator[object]:
            yield do(*asked[0])
            raise KeyboardInterrupt

        yield one

    monkeypatch.setattr("lab.simulator.commands.run.processes", interrupted)
    file = tmp_path / "fleet.yaml"
    file.write_text(SMALL, encoding="utf-8")
    asked = ["run", str(file), "--output", str(tmp_path / "out"), "--replications", "3"]
    assert command_line.run(asked) == 130
    assert "was interrupted" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert command_line.run(asked) == 1
    said = capsys.readouterr().err
    assert "1 of 3 replications have ended" in said and "has the results of a run already" in said


@pytest.mark.parametrize("file", [each for each in EXAMPLES if each not in SEARCHES], ids=lambda file: file.stem)
def test_a_second_of_a_worked_question_runs(file: Path) -> None:
    kept = Kept()
    configuration = read(file, ["sim_time_ms=1000", "burn_in_ms=0"])
    simulate(configuration, seed_of(configuration, 0), kept)
    assert kept.samples


@pytest.mark.parametrize("file", SEARCHES, ids=lambda file: file.stem)
def test_all_candidates_of_a_worked_question_can_run(file: Path) -> None:
    found, complaints = candidates(read_search(file), file.with_stem(file.stem.removesuffix("-search")))
    assert len(found) > 1 and complaints == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "seed: 7\n"),
        ("", "router: random\n"),
        ("", "router: jsq\nlook_every_ms: 0\n"),
        ("", "sample_every_ms: 100\n"),
        ("sim_time_ms: 3000", "sim_time_ms: 2000"),
        ("mode: fused", "mode: target"),
        ("count: 2", "count: 3"),
        ("decode_ms: 25", "decode_ms: 25, per_token_ms: 1"),
        ("decode_ms: 25", "decode_ms: 25, per_sequence_ms: 5"),
        ("decode_ms: 4", "decode_ms: 6"),
        ("0.6]", "0.6], slots: 1"),
        ("slots: 2", "slots: 1"),
        ("slots: 2", "slots: 2\n      prefill_chunk: 2"),
        ("slots: 2", "slots: 2\n      max_queue: 1"),
        ("0.9, 0.6", "0.9"),
        ("rate_rps: 16", "rate_rps: 17"),
        ("slots: 2", "slots: 2\n      context: 20"),
        ("prompt_tokens: 9", "prompt_tokens: 900"),
        ("output_tokens: 12", "output_tokens: 11"),
        ("output_tokens: 12", "output_tokens: 12, turns: 2"),
        ("output_tokens: 12", "output_tokens: 12, turns: 2, think_ms: 500"),
    ],
)
def test_a_key_makes_a_difference(before: str, after: str) -> None:
    changed = FUSED.replace(before, after, 1) if before else after + FUSED
    assert changed != FUSED
    differ(FUSED, changed)


def test_a_policy_beside_the_file_is_the_router(tmp_path: Path) -> None:
    (tmp_path / "last_of_all.py").write_text(
        "from gateway.balancing import Policy\n\n\nclass Last(Policy):\n"
        "    def choose(self, order, text):\n        return max(order, key=lambda each: each.name)\n"
    )
    found = ran(configured("router: last_of_all:Last\n" + SMALL, tmp_path))
    assert {node for each in found.records for node in each.nodes} == {"big-2"}


def test_a_text_that_no_verifier_holds_is_refused_and_a_long_one_goes_where_it_fits() -> None:
    text = SMALL.replace("prompt_tokens: 9", "prompt_tokens: {distribution: uniform, min: 5, max: 40}")
    short = "    - {name: small, count: 3, cost: {law: linear, decode_ms: 25}, context: 20}\n"
    text = text.replace("workload:", short + "workload:").replace("decode_ms: 25}}", "decode_ms: 25}, context: 35}")
    found = ran(configured(text))
    by = {status: [each.text_tokens for each in found.records if each.status is status] for status in Status}
    assert min(by[Status.REFUSED]) > 35 >= max(by[Status.WHOLE]) > 20
    small = [each.text_tokens for each in found.records if each.nodes and each.nodes[0].startswith("small")]
    assert small and max(small) <= 20
