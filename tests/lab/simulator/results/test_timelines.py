"""Which requests of a replication have their timelines shown, and their files."""

import csv
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from lab.simulator.configuration.reading import parse
from lab.simulator.fleet.record import Record, Status
from lab.simulator.results.files import TIMELINES
from lab.simulator.results.replications import replicated
from lab.simulator.results.report.lanes import first_rounds, request_charts
from lab.simulator.results.summary import as_json, summary
from lab.simulator.results.timelines import Chosen
from lab.simulator.virtual.timeline import Timeline, What
from lab.simulator.virtual.world import EventLoop

FILE = """
sim_time_ms: 6000
burn_in_ms: 500
mode: MODE
gamma: 3
devices:
  verifiers:
    - {name: big, cost: {law: linear, decode_ms: 25}, draft: {cost: {law: linear, decode_ms: 3}, agreement: 0.8}}
  drafters: [{name: laptop, count: 4, agreement: 0.8, cost: {law: linear, decode_ms: 5}}]
workload: {arrival: poisson, rate_rps: 2, prompt_tokens: 20, output_tokens: 40, tenants: [{name: chat}, {name: code}]}
"""


def a_request(name: str, sent: float, latency: float, status: Status = Status.WHOLE, tenant: str = "chat") -> Record:
    times = [sent + latency] if status is Status.WHOLE else []
    made = Record(name, 0, tenant, 10, 1, sent, status, "laptop", times=times, over=sent + latency)
    made.timeline = Timeline(EventLoop())
    return made


def chosen(records: list[Record]) -> dict[str, str]:
    """Names of requests, by why they were chosen."""
    choice = Chosen(begin=5.0, seed=3)
    for each in records:
        choice.add(each)
    return {each.why: each.record.conversation for each in choice.chosen()}


def test_first_median_and_longest_are_chosen() -> None:
    several = [a_request(f"c{number}", 5.0 + number, 1.0 + number) for number in range(9)]
    burn_in, by_table = a_request("b", 1.0, 99.0), a_request("t", 6.0, 99.0)
    by_table.timeline = None
    found = chosen([*several[::-1], burn_in, by_table])
    assert found == {"first": "c0", "median latency": "c4", "longest latency": "c8"}
    assert chosen([*several[:1]]) == {"first, median latency, longest latency": "c0"}


def test_tenants_have_their_first_requests_and_are_few() -> None:
    several = [a_request(f"c{number}", 5.0 + number, 1.0, tenant=f"t{number % 9}") for number in range(40)]
    found = chosen(several)
    assert {"first of t0", "first of t2"} <= {why.split(", ")[0] for why in found} and len(found) <= 5


def test_where_nothing_becomes_whole_the_one_that_waits_the_longest_is_chosen() -> None:
    several = [a_request(f"c{sent}", sent, 20.0 - sent, Status.UNFINISHED) for sent in (9.0, 6.0, 8.0)]
    assert chosen(several) == {"longest under way": "c6.0"}
    assert chosen([]) == {}


def test_many_requests_leave_few_behind() -> None:
    choice = Chosen(0.0, 3)
    for number in range(5000):
        choice.add(a_request(f"c{number}", float(number), 1.0 + number % 100))
    [median] = [each for each in choice.chosen() if "median" in each.why]
    assert 20 < median.record.end - median.record.sent < 80, "one of a draw in which all are as likely"
    assert sum(len(value) for value in vars(choice).values() if isinstance(value, list | dict)) < 40


def test_timelines_are_the_same_in_parquet_as_in_csv(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    [one] = replicated(parse(FILE.replace("MODE", "remote"), "fleet.yaml", tmp_path), folder=tmp_path)
    table = parquet.read_table(tmp_path / "timelines-1.parquet")
    assert table.column_names == [*TIMELINES] and len(table) == sum(len(each.spans) for each in one.timelines) > 10
    with (tmp_path / "timelines-1.csv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [{name: str(value) for name, value in row.items()} for row in table.to_pylist()] == rows


@pytest.mark.parametrize("mode", ["target", "fused", "lockstep", "remote", "auto"])
def test_each_mode_has_its_timelines_in_a_file_and_on_the_page(mode: str, tmp_path: Path) -> None:
    configuration = parse(FILE.replace("MODE", mode), "fleet.yaml", tmp_path)
    [one] = replicated(configuration, folder=tmp_path)
    with (tmp_path / "timelines-1.csv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [*rows[0]] == [*TIMELINES] and {row["why"] for row in rows} == {each.why for each in one.timelines}
    assert {row["lane"] for row in rows} == (
        {"wire", "verifier"} if mode == "target" else {"drafter", "wire", "verifier"}
    )
    for each in one.timelines:
        window = first_rounds(each.spans)
        assert window is not None and each.record.sent < window[0] < window[1]
        drawn = "".join(request_charts(each))
        assert drawn.count("<svg") == 2 and len(drawn) < 100_000
        assert mode in ("target", "auto") or any(span.what is What.DRAFT for span in each.spans)
    whole = json.loads(as_json(summary("fleet", configuration, [one])))
    assert "timelines" not in whole["replications"][0] and asdict(one)["timelines"]
