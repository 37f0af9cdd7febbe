"""What is gathered of a replication."""

import json
import math

import pytest

from lab.simulator.configuration.reading import parse
from lab.simulator.fleet.record import Record, Sample, Status
from lab.simulator.results.gathered import Gathered, intervals_of
from lab.simulator.results.measures import MEASURES
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
    last: bool = True,
    drafted: int = 0,
    accepted: int = 0,
) -> Record:
    over = 60.0 if status is Status.UNFINISHED else times[-1]
    wanted = len(times) if status is Status.WHOLE else 4
    made = Record(name, 0, "all", 10, wanted, sent, status, "laptop", times=times, over=over, last=last)
    made.drafted, made.accepted = drafted, accepted
    return made


def a_sample(at: float, node: str = "big-1", *, up: bool = True, passes: int = 0, busy: float = 0.0) -> Sample:
    return Sample(at, node, "big", up, 1, 2, 4, 8, passes, busy, 3 * passes, 6 * passes)


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
    found.record(a_record(23.0, [23.1], status=Status.ABORTED))
    found.record(a_record(59.9, [], status=Status.UNFINISHED))  # may keep them yet
    found.record(a_record(59.0, [59.6], status=Status.UNFINISHED))  # has broken one
    found.record(a_record(50.0, [], status=Status.UNFINISHED))  # has broken one without any token
    found.record(a_record(9.5, [9.9, 10.8, 11.0]))  # breaks one behind the burn-in
    values = found.measures()
    assert values["slo_attainment"] == 1 / 7
    assert [values[each] for each in ("whole", "aborted", "unfinished")] == [3, 1, 3]
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


def test_short_runs_have_fewer_intervals_and_none_has_very_short_ones() -> None:
    assert [intervals_of(seconds) for seconds in (0.3, 10, 40, 60, 600)] == [12, 12, 20, 30, 60]


def test_without_bounds_there_is_no_attainment() -> None:
    found = gathered(FILE.replace("slo: {ttft_ms: 500, tpot_ms: 200}", ""))
    found.record(a_record(20.0, [20.1, 20.2]))
    values = found.measures()
    assert math.isnan(values["slo_attainment"]) and math.isnan(values["goodput_rps"])


def test_fairness_is_over_conversations() -> None:
    """Jain's index of 1 and 3 tokens a second is (1 + 3)² / (2 (1 + 9))."""
    found = gathered()
    found.record(a_record(20.0, [20.5, 21.0], name="slow", last=False))  # its second turn brings it to 1 a second
    found.record(a_record(30.0, [33.0, 33.0], name="slow"))
    found.record(a_record(20.0, [21.0, 21.0, 21.0], name="fast"))
    assert found.measures()["fairness"] == pytest.approx(16 / 20)


def test_verifiers() -> None:
    found = gathered()
    for at, passes, busy in ((5.0, 7, 1.0), (10.0, 10, 2.0), (20.0, 30, 6.0), (30.0, 50, 10.0)):
        found.sample([a_sample(at, passes=passes, busy=busy), a_sample(at, "big-2", up=at < 30)])
    values = found.measures()
    assert values["utilisation"] == pytest.approx(8 / (20 + 10))
    assert (values["occupancy"], values["tokens_per_pass"]) == (3.0, 6.0)
    assert (values["queue_depth"], values["slots_held"]) == (2 * 4 / 3, 4 * 4 / (3 * 8))
    assert found.nodes()["big-1"]["utilisation"] == pytest.approx(0.4)


def test_energy_and_cost() -> None:
    """A verifier is there for 20 s, four laptops for the 50 s behind the burn-in."""
    found = gathered()
    found.sample([a_sample(10.0)])
    found.sample([a_sample(30.0)])
    found.record(a_record(20.0, [21.0, 22.0, 23.0, 24.0]))
    values = found.measures()
    joules = 100 * 20 + 4 * 10 * 50
    assert values["energy_j_per_token"] == joules / 4
    assert values["cost_per_million"] == pytest.approx((3.6 * 20 / 3600 + 0.5 * joules / 3.6e6) * 1e6 / 4)


def test_measures_have_names_for_files_and_words_for_readers() -> None:
    assert all(name == each.name and each.meaning and each.words for name, each in MEASURES.items())
    assert len({each.words for each in MEASURES.values()}) == len(MEASURES)
    json.dumps(gathered().series())
