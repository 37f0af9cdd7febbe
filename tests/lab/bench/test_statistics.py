"""Measures, the steady state, intervals and comparisons."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.errors import BadSide
from lab.bench.records import MeasuredRequest, RequestFailure, Results, Slo, Speculation, Stretch
from lab.bench.statistics.analysis import analyse
from lab.bench.statistics.bootstrap import FEWEST, Quotients, paired_ratio
from lab.bench.statistics.comparison import Sample, compare
from lab.bench.statistics.distribution import distribution
from lab.bench.statistics.steady_state import steady_window, tokens_within, under_load
from lab.bench.statistics.summary import summarise
from tests.lab.bench.runs import a_case, a_request, a_side, at_pace, pair_and_target

positive = st.floats(0.001, 1000)


def four_at_two_at_once() -> list[MeasuredRequest]:
    """Two at once from second 0 to 3; then the last goes on alone to second 4. Each token comes 0.1 s after another."""
    spans = [(0.0, 1.0), (0.0, 2.0), (1.0, 2.0), (2.0, 2.0)]
    return [
        a_request(
            index=index,
            started=begin,
            chunks=tuple(length * number / 10 for number in range(1, 11)),
            ended=length,
        )
        for index, (begin, length) in enumerate(spans)
    ]


def test_load_is_steady_while_as_many_are_under_way_as_were_asked_for() -> None:
    stretch = four_at_two_at_once()
    assert tuple(under_load(stretch)) == (0, 4)
    assert tuple(steady_window(stretch, 2) or ()) == (0, 3)
    assert steady_window(stretch, 3) is None
    assert tuple(steady_window(stretch, 1) or ()) == (0, 4)


def test_arrivals_without_a_limit_are_steady_until_the_last() -> None:
    assert tuple(steady_window(four_at_two_at_once(), None) or ()) == (0, 2)
    assert steady_window(four_at_two_at_once()[:1], None) is None


def test_tokens_of_a_window_are_those_of_its_chunks() -> None:
    request = a_request(started=2.0, chunks=(1.0, 2.0, 3.0, 4.0), tokens_out=8)
    window = steady_window([a_request(started=0.0, ended=4.5)], 1)
    assert window is not None
    assert tokens_within(request, window) == 4
    assert tokens_within(a_request(chunks=(), tokens_out=0), window) == 0


def test_a_summary_has_the_figures_of_its_definitions() -> None:
    case = a_case(concurrency=2, slo=Slo(latency_ms=1500))
    stretches = [Stretch(number=0, side="s", case="counting", repetition=0, begun=0, ended=4, energy_joules={"m": 80})]
    found = summarise(case, a_side("s", price_per_hour=9.0), four_at_two_at_once(), stretches)
    assert (found.requests, found.tokens_out, found.loaded_s, found.steady_s) == (4, 40, 4, 3)
    assert found.values == {
        "load_tokens_per_second": 10,
        "steady_tokens_per_second": pytest.approx(35 / 3),
        "goodput": 0.25,
        "good_share": 0.25,
        "joules_per_token": 2,
        "cost_per_million_tokens": pytest.approx(9 / 3600 * 4 / 40 * 1e6),
    }
    assert found.distributions["latency_ms"].mean == pytest.approx(1750)
    assert found.distributions["ttft_ms"].p50 == pytest.approx(200)
    assert found.distributions["itl_ms"].mean == pytest.approx((100 + 3 * 200) / 4)
    assert found.distributions["chunk_gap_ms"].count == 36


def test_failures_belong_to_the_load_but_to_no_latency() -> None:
    failed = a_request(index=1, started=1.5, ended=2.5, failure=RequestFailure(kind="timeout", message="late"))
    found = summarise(a_case(slo=Slo(ttft_ms=1000)), a_side("s"), [a_request(), failed], [])
    assert (found.requests, found.failures, found.loaded_s, found.tokens_out) == (2, {"timeout": 1}, 4, 10)
    assert found.distributions["latency_ms"].count == 1
    assert found.values["good_share"] == 0.5
    only = summarise(a_case(), a_side("s"), [failed], [])
    assert (only.distributions, only.values) == ({}, {})


def test_speculation_is_summed_before_it_is_divided() -> None:
    told = [
        Speculation(drafted=10, accepted=8, rounds=2, accepted_per_round=(0, 0, 0, 0, 2)),
        Speculation(drafted=30, accepted=4, rounds=6, accepted_per_round=(4, 0, 2)),
        Speculation(drafted=0, accepted=0),
    ]
    requests = [a_request(index=index, speculation=each) for index, each in enumerate(told)]
    found = summarise(a_case(), a_side("s"), requests, [])
    assert (found.drafted, found.accepted, found.rounds) == (40, 12, 8)
    assert found.accepted_per_round == (4, 0, 2, 0, 2)
    assert found.values["acceptance_rate"] == pytest.approx(0.3)
    assert found.values["mean_acceptance_length"] == 2.5
    assert found.values["drafted_per_token"] == pytest.approx(40 / 30)


@given(st.lists(positive, min_size=1, max_size=50))
def test_a_distribution_is_that_of_numpy(values: list[float]) -> None:
    found = distribution(values)
    assert found is not None
    assert found.p90 == pytest.approx(np.percentile(values, 90))
    assert found.min <= found.p25 <= found.p50 <= found.p99 <= found.max
    assert distribution(values[::-1]) == found


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """Of eight prompts whose lengths differ much, with noise of 10 %: 95 % are promised. The same draws every time."""
    random = np.random.default_rng(5)
    covered, runs, truth = 0, 400, 1.4
    for _ in range(runs):
        prompts = np.exp(random.normal(0, 0.3, 8))
        theirs = prompts * np.exp(random.normal(0, 0.1, 8))
        mine = truth * prompts * np.exp(random.normal(0, 0.1, 8))
        ones = [1.0] * 8
        found = paired_ratio(Quotients([*mine], ones), Quotients([*theirs], ones))
        assert found is not None and found.low is not None and found.high is not None
        assert found.low <= found.ratio <= found.high
        covered += found.low <= truth <= found.high
    assert covered / runs == pytest.approx(0.95, abs=0.025)


@given(st.lists(positive, min_size=FEWEST, max_size=12), positive)
def test_a_constant_ratio_has_an_interval_of_no_width(values: list[float], factor: float) -> None:
    ones = [1.0] * len(values)
    found = paired_ratio(Quotients([factor * value for value in values], ones), Quotients(values, ones))
    assert found is not None and found.low is not None and found.high is not None
    assert found.ratio == pytest.approx(factor)
    assert found.low == pytest.approx(factor, rel=1e-6) and found.high == pytest.approx(factor, rel=1e-6)


@given(st.lists(st.tuples(positive, positive), min_size=FEWEST, max_size=12))
def test_exchanged_sides_have_the_inverse_interval(pairs: list[tuple[float, float]]) -> None:
    mine, theirs = (Quotients([*values], [1.0] * len(pairs)) for values in zip(*pairs, strict=True))
    forth, back = paired_ratio(mine, theirs), paired_ratio(theirs, mine)
    assert forth is not None and back is not None
    assert forth.ratio == pytest.approx(1 / back.ratio)
    assert forth.low is not None and back.high is not None
    assert forth.low == pytest.approx(1 / back.high, rel=1e-6)


def test_there_is_no_ratio_of_nothing_and_no_interval_of_few() -> None:
    assert paired_ratio(Quotients([], []), Quotients([], [])) is None
    assert paired_ratio(Quotients([0.0] * 9, [1.0] * 9), Quotients([1.0] * 9, [1.0] * 9)) is None
    few = paired_ratio(Quotients([2.0] * 4, [1.0] * 4), Quotients([1.0] * 4, [1.0] * 4))
    assert few is not None
    assert few.ratio == pytest.approx(2) and few.low is None and few.high is None


def test_the_faster_side_wins_and_a_tie_is_called_a_tie() -> None:
    found = analyse(pair_and_target())
    fast, tied = (found.comparison(case, "pair", "tokens_per_second") for case in ("counting", "noise"))
    assert fast is not None and tied is not None
    assert (fast.winner, tied.winner) == ("pair", None)
    assert fast.ratio == pytest.approx(2, abs=0.05)
    assert fast.verdict.startswith(f"pair is {fast.ratio:.2f} times target (1.9")
    assert tied.verdict.startswith("no difference seen: 0.9")
    latency = found.comparison("counting", "pair", "latency_ms")
    assert latency is not None and latency.ratio < 1 and latency.winner == "pair"
    energy = found.comparison("counting", "pair", "joules_per_token")
    assert energy is not None and energy.winner == "pair"


def test_a_case_of_few_requests_has_no_verdict() -> None:
    """However often they are repeated."""
    sides = [
        Sample(side, [at_pace(pace, side=side, repetition=number) for number in range(9)], [])
        for side, pace in (("pair", 0.1), ("target", 0.2))
    ]
    found = next(each for each in compare("c", *sides) if each.measure == "tokens_per_second")
    assert (found.units, found.winner) == (1, None)
    assert found.verdict == "too few to tell: 1 of both sides, 5 are needed (ratio 2.00)"


def test_requests_that_one_side_lacks_are_not_compared() -> None:
    mine = [at_pace(0.1, index=index) for index in range(6)]
    theirs = [at_pace(0.2, index=index) for index in range(1, 9)]
    theirs[0] = replace(theirs[0], failure=RequestFailure(kind="cut", message=""))
    [found] = [
        each for each in compare("c", Sample("a", mine, []), Sample("b", theirs, [])) if each.measure == "ttft_ms"
    ]
    assert found.units == 4


def test_energy_of_sides_that_ran_together_is_none_of_theirs() -> None:
    results = pair_and_target()
    results = Results(replace(results.run, interleaving="together"), results.requests, results.stretches)
    found = analyse(results)
    assert all("joules_per_token" not in each.values for each in found.summaries)
    assert found.comparison("counting", "pair", "joules_per_token") is None


def test_the_order_of_records_does_not_matter() -> None:
    results = pair_and_target()
    expected = analyse(results)
    for seed in range(3):
        shuffle = random.Random(seed)
        requests = shuffle.sample([*results.requests], len(results.requests))
        stretches = shuffle.sample([*results.stretches], len(results.stretches))
        assert analyse(Results(results.run, requests, stretches)) == expected


def test_another_side_can_be_the_baseline() -> None:
    found = analyse(pair_and_target(), "pair")
    slow = found.comparison("counting", "target", "tokens_per_second")
    assert slow is not None and slow.winner == "pair" and slow.ratio == pytest.approx(0.5, abs=0.02)
    with pytest.raises(BadSide, match="--baseline: no side is called 'x'; choose one of target, pair"):
        analyse(pair_and_target(), "x")
