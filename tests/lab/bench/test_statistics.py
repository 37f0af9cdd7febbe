"""Measures, intervals, comparisons, equal texts."""

from dataclasses import replace

import numpy as np
import pytest

from lab.bench.analysis import analyse, equality
from lab.bench.case import Slo
from lab.bench.comparison import Sample, compare, paired_ratio
from lab.bench.records import MeasuredRequest, RequestFailure, Speculation
from lab.bench.summary import summarise
from tests.lab.bench.runs import a_case, a_request, a_side, at_pace, pair_and_target


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


def test_a_summary_has_the_figures_of_its_definitions() -> None:
    case = a_case(slo=Slo(latency_ms=1500))
    found = summarise(case.case, a_side("s", price_per_hour=9.0), four_at_two_at_once())
    assert (found.requests, found.tokens_out, found.loaded_s) == (4, 40, 4)
    assert found.values == {
        "load_tokens_per_second": 10,
        "goodput": 0.25,
        "good_share": 0.25,
        "cost_per_million_tokens": pytest.approx(9 / 3600 * 4 / 40 * 1e6),
    }
    assert found.distributions["latency_ms"].mean == pytest.approx(1750)
    assert found.distributions["ttft_ms"].p50 == pytest.approx(200)
    assert found.distributions["itl_ms"].mean == pytest.approx((100 + 3 * 200) / 4)
    assert found.distributions["chunk_gap_ms"].count == 36


def test_failures_belong_to_the_load_but_to_no_latency() -> None:
    failed = a_request(index=1, started=1.5, ended=2.5, failure=RequestFailure(kind="timeout", message="late"))
    found = summarise(a_case(slo=Slo(ttft_ms=1000)).case, a_side("s"), [a_request(), failed])
    assert (found.requests, found.failures, found.loaded_s, found.tokens_out) == (2, {"timeout": 1}, 4, 10)
    assert found.distributions["latency_ms"].count == 1
    assert found.values["good_share"] == 0.5
    only = summarise(a_case().case, a_side("s"), [failed])
    assert (only.distributions, only.values) == ({}, {})


def test_speculation_is_summed_before_it_is_divided() -> None:
    told = [
        Speculation(drafted=10, accepted=8, rounds=2),
        Speculation(drafted=30, accepted=4, rounds=6),
        Speculation(drafted=0, accepted=0),
    ]
    requests = [a_request(index=index, speculation=each) for index, each in enumerate(told)]
    found = summarise(a_case().case, a_side("s"), requests)
    assert found.values["acceptance_rate"] == pytest.approx(0.3)
    assert found.values["mean_acceptance_length"] == 2.5
    assert found.values["drafted_per_token"] == pytest.approx(40 / 30)


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    """Of eight prompts whose lengths differ much, with noise of 10 %: 95 % are promised. The same draws every time."""
    random = np.random.default_rng(5)
    covered, runs, truth = 0, 400, 1.4
    for _ in range(runs):
        prompts = np.exp(random.normal(0, 0.3, 8))
        theirs = prompts * np.exp(random.normal(0, 0.1, 8))
        mine = truth * prompts * np.exp(random.normal(0, 0.1, 8))
        found = paired_ratio([(each, 1.0) for each in mine], [(each, 1.0) for each in theirs])
        assert found is not None and found.low is not None and found.high is not None
        assert found.low <= found.ratio <= found.high
        covered += found.low <= truth <= found.high
    assert covered / runs == pytest.approx(0.95, abs=0.025)


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


def test_requests_that_one_side_lacks_are_not_compared() -> None:
    mine = [at_pace(0.1, index=index) for index in range(6)]
    theirs = [at_pace(0.2, index=index) for index in range(1, 9)]
    theirs[0] = replace(theirs[0], failure=RequestFailure(kind="cut", message=""))
    [found] = [each for each in compare("c", Sample("a", mine), Sample("b", theirs)) if each.measure == "ttft_ms"]
    assert found.units == 4


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        ("same, then a\n line", "same, then b", r"after 11 characters 'a\n line' in place of 'b'"),
        ("same", "same, and more", "after 4 characters its end in place of ', and more'"),
        ("x" * 100, "", "after 0 characters 'xxxxxxxxxxxxxxxxxxxxxxxx' in place of its end"),
        (None, None, "seed 7 (the run keeps no texts)"),
    ],
)
def test_the_first_texts_that_differ_are_told(mine: str | None, theirs: str | None, words: str) -> None:
    """By repetition and request, whatever the order of the records."""
    ones = [
        a_request(repetition=1, index=0, text="later"),
        a_request(index=3, prompt="p3", seed=7, text=mine, text_hash="mine"),
        a_request(index=1, text="a"),
    ]
    others = [
        a_request(repetition=1, index=0, text="another"),
        a_request(index=1, text="a"),
        a_request(index=3, prompt="p3", seed=7, text=theirs, text_hash="theirs"),
    ]
    found = equality("c", "pair", "target", ones, others)
    assert found is not None and (found.equal, found.pairs) == (1, 3)
    assert "the first that differs: prompt p3, seed 7" in found.sentence and found.sentence.endswith(words)
