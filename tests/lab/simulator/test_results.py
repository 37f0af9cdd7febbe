"""What is made of a replication, and of several: measures, estimates, files."""

import csv
import json
import re
from dataclasses import asdict
from functools import partial
from io import StringIO
from pathlib import Path

import pytest

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.reading import parse
from lab.simulator.fleet.record import Record, Sample, Status
from lab.simulator.results.gathered import Gathered
from lab.simulator.results.measures import MEASURES, estimate
from lab.simulator.results.page import page
from lab.simulator.results.replications import (
    REQUESTS,
    Replication,
    evaluate,
    processes,
    replicate,
    write_requests,
)
from lab.simulator.results.summary import RunSummary
from tests.paths import ROOT

FILE = """
sim_time_ms: 60000
burn_in_ms: 10000
devices:
  verifiers: [{name: big, count: 2, cost: {law: linear, decode_ms: 25}}]
  drafters: [{name: laptop, count: 4, agreement: 0.8, cost: {law: linear, decode_ms: 5}}]
workload: {arrival: poisson, rate_rps: 1, prompt_tokens: 10, output_tokens: 4}
slo: {ttft_ms: 500, tpot_ms: 200}
prices: {per_hour: {big: 3.6}, watts: {big: 100, laptop: 10}, per_kwh: 0.5}
"""


def gathered(text: str = FILE) -> Gathered:
    return Gathered(parse(text, "fleet.yaml", ROOT))


def a_record(
    sent: float,
    times: list[float],
    *,
    status: Status = Status.WHOLE,
    name: str = "c",
    drafted: int = 0,
    accepted: int = 0,
) -> Record:
    over = 60.0 if status is Status.UNFINISHED else times[-1]
    wanted = len(times) if status is Status.WHOLE else 4
    made = Record(name, 0, "all", 10, wanted, sent, status, "laptop", times=times, over=over)
    made.drafted, made.accepted = drafted, accepted
    return made


def a_sample(at: float, node: str = "big-1", *, passes: int = 0, busy: float = 0.0) -> Sample:
    return Sample(at, node, "big", 2, 4, 8, passes, busy, 3 * passes, 6 * passes)


def test_times_of_requests() -> None:
    found = gathered()
    found.record(a_record(20.0, [20.4, 20.4, 20.6, 20.7], drafted=4, accepted=3))
    values = found.measures()
    assert list(values) == list(MEASURES)
    assert values["ttft_p50_ms"] == pytest.approx(400, rel=2e-3)
    assert values["tpot_p99_ms"] == pytest.approx(100, rel=2e-3)
    assert values["latency_p95_ms"] == pytest.approx(700, rel=2e-3)
    assert values["round_p50_ms"] == pytest.approx(150, rel=2e-3)
    assert (values["acceptance"], values["tokens_per_round"]) == (0.75, 1.0)
    assert (values["throughput_tps"], values["requests_rps"]) == (4 / 50, 1 / 50)
    assert (values["slo_attainment"], values["goodput_rps"]) == (1.0, 1 / 50)


def test_the_burn_in_is_left_out() -> None:
    found = gathered()
    found.record(a_record(9.0, [9.5, 9.9, 10.0, 10.5]))
    values = found.measures()
    assert values["throughput_tps"] == 2 / 50, "tokens count that came behind it"
    assert values["requests_rps"] == 1 / 50
    assert values["whole"] == 0 and values["slo_attainment"] == 0, "a bound was broken at 10.1 s"
    assert found.series()["throughput_tps"][4:6] == [1.0, 1.0]


def test_bounds_count_for_what_is_whole_and_for_what_has_broken_them() -> None:
    found = gathered()
    found.record(a_record(20.0, [20.1, 20.2]))  # keeps them
    found.record(a_record(21.0, [21.6, 21.7]))  # first token too late
    found.record(a_record(22.0, [22.1, 22.4]))  # further tokens too slow
    found.record(a_record(23.0, [23.1], status=Status.FAILED))
    found.record(a_record(59.9, [], status=Status.UNFINISHED))  # may keep them yet
    found.record(a_record(59.0, [59.6], status=Status.UNFINISHED))  # has broken one
    found.record(a_record(50.0, [], status=Status.UNFINISHED))  # has broken one without any token
    found.record(a_record(9.5, [9.9, 10.8, 11.0]))  # breaks one behind the burn-in
    values = found.measures()
    assert values["slo_attainment"] == 1 / 7
    assert [values[each] for each in ("whole", "failed", "unfinished")] == [3, 1, 3]
    assert found.devices()["laptop"]["slo_attainment"] == found.tenants()["all"]["slo_attainment"] == 1 / 7


def test_series_have_no_edge_where_requests_are_under_way() -> None:
    """Each request takes 5 s and every second one is too late: that is so at all times, and in the last ones, too."""
    found = gathered(FILE.replace("ttft_ms: 500, tpot_ms: 200", "latency_ms: 5500"))
    for number in range(1200):
        sent, seconds = number / 20, (5.0, 6.0)[number % 2]
        there = sent + seconds <= 60.0
        times = [sent + 1.0, sent + seconds] if there else [sent + 1.0] if sent <= 59.0 else []
        found.record(a_record(sent, times, status=Status.WHOLE if there else Status.UNFINISHED))
    series = found.series()
    assert series["slo_attainment"][3:] == pytest.approx([0.5] * 27, abs=0.03)
    assert series["ttft_p95_ms"][3:] == pytest.approx([1000.0] * 27, rel=2e-3)
    assert series["tpot_p95_ms"][4:] == pytest.approx([5000.0] * 26, rel=2e-3)
    assert found.measures()["slo_attainment"] == pytest.approx(0.5, abs=0.01)


def test_energy_and_cost() -> None:
    """A verifier is sampled over 20 s, four laptops are there for the 50 s behind the burn-in."""
    found = gathered()
    found.sample([a_sample(10.0)])
    found.sample([a_sample(30.0)])
    found.record(a_record(20.0, [21.0, 22.0, 23.0, 24.0]))
    values = found.measures()
    joules = 100 * 20 + 4 * 10 * 50
    assert values["energy_j_per_token"] == joules / 4
    assert values["cost_per_million"] == pytest.approx((3.6 * 20 / 3600 + 0.5 * joules / 3.6e6) * 1e6 / 4)


def test_an_interval_ends_where_values_cannot_be() -> None:
    share, seconds = MEASURES["slo_attainment"], MEASURES["ttft_p95_ms"]
    wide = share.estimate([0.2, 0.99])
    assert (wide.low, wide.high, wide.cut) == (0.0, 1.0, True)
    assert share.text(wide) == "59.5 % (0.0 % to 100.0 %)"
    narrow = share.estimate([0.5, 0.51, 0.49])
    assert not narrow.cut and share.text(narrow) == "50.0 % ± 2.5 %"
    assert seconds.text(seconds.estimate([1.0, 400.0])) == "200 (0 to 2,735)"
    assert not share.estimate([1.0, 1.0]).cut and share.estimate([1.0, 1.0]).high == 1.0
    assert seconds.text(estimate([2.0, 2.0]), signed=True) == "+2.00 ± 0"


REPLICATED = """
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
    return parse(REPLICATED, "fleet.yaml", Path())


def test_results_and_files_are_the_same_whatever_the_processes(configuration: Configuration, tmp_path: Path) -> None:
    found, contents = [], []
    for jobs in (1, 2):
        folder = tmp_path / str(jobs)
        folder.mkdir()
        with processes(jobs, partial(replicate, folder=folder)) as replications:
            found.append([*replications([(configuration, number) for number in range(2)])])
        contents.append({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    assert json.dumps([*map(asdict, found[0])]) == json.dumps([*map(asdict, found[1])])
    assert contents[0] == contents[1] and [*contents[0]] == ["requests-1.csv", "requests-2.csv"]
    assert found[0][0].measures != found[0][1].measures, "each has a chance of its own"
    assert repr(evaluate(configuration, 1)) == repr(found[0][1].measures)
    requests = [*csv.DictReader(StringIO(contents[0]["requests-2.csv"].decode()))]
    assert [*requests[0]] == [*REQUESTS] and {each["replication"] for each in requests} == {"2"}
    whole = [each for each in requests if each["status"] == "whole" and float(each["sent_s"]) >= 0.5]
    assert len(whole) == found[0][1].measures["whole"]
    text = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8")
    assert not [name for name in REQUESTS if f"`{name}`" not in text]


# What people look at: names of tenants, devices and conversations may be anything, and stay text wherever they are.

NAMES = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><style>*{display:none}",
    "name\u202egnp.exe",
    "\x1b]0;pwned\x07\x1b[31m",
    "=HYPERLINK(1)",
    "[bold]name[/nothing]",
    "a\r\nb",
]
HOSTILE_FILE = """
sim_time_ms: 60000
devices:
  verifiers: [{name: big, cost: {law: linear, decode_ms: 25}}]
workload: {arrival: poisson, rate_rps: 1, prompt_tokens: 10, output_tokens: 4}
mode: target
slo: {ttft_ms: 500}
"""
UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
MOST = 300_000  # characters of the page


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def run(folder: Path) -> RunSummary:
    """A run in which everything has the hostile names, and a folder with its files."""
    configuration = parse(HOSTILE_FILE, "fleet.yaml", folder)
    gathered = Gathered(configuration)
    for number, name in enumerate(NAMES):
        sent = 10.0 + number
        record = Record(name, 0, name, 10, 2, sent, device=name, nodes=[name], times=[sent + 1, sent + 2])
        record.over = sent + 2
        gathered.record(record)
    write_requests(gathered.records, folder, 0)
    for at in (10.0, 20.0):
        gathered.sample([Sample(at, name, name, 1, 1, 2, 3, at / 2, 3, 3) for name in NAMES])
    told = gathered.measures(), gathered.tenants(), gathered.devices(), gathered.nodes(), gathered.series()
    return RunSummary.of(NAMES[0] + NAMES[4], configuration, [Replication(1, *told)])


def test_the_page_is_one_file_without_scripts_or_outside_references(run: RunSummary) -> None:
    shown = page(run)
    tags = {name.lower() for name in re.findall(r"<([A-Za-z][A-Za-z0-9-]*)", shown)}
    assert not tags & {"script", "img", "link", "iframe", "object", "embed", "base", "form", "image", "use", "a-b"}
    assert shown.count("<style") == 1 and "&lt;script&gt;alert(1)" in shown
    assert not re.search(r"<[^>]*\s(on\w+|src|srcset|style|action)=", shown, re.IGNORECASE)
    assert all(to.startswith("#") for to in re.findall(r'href="([^"]*)"', shown))
    assert not re.search(r"url\(|@import|https?://", shown)
    assert "Content-Security-Policy" in shown and "default-src &#x27;none&#x27;" in shown
    assert not UNSEEN.search(shown) and len(shown) < MOST


def test_files_hold_names_as_they_are_but_no_formulas(run: RunSummary, folder: Path) -> None:
    with (folder / "requests-1.csv").open(encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith("=")]
    assert NAMES[0] in cells and "'=HYPERLINK(1)" in cells
