"""Drawn workloads: rates, order, the same seed the same conversations, and streams that do not move each other."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, pairwise
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.workload.arrivals import Arrivals, Deterministic, Gamma, OnOff, Poisson
from lab.simulator.workload.availability import Always, ComesAndGoes
from lab.simulator.workload.conversation import Conversation, Workload
from lab.simulator.workload.distributions import (
    Constant,
    Distribution,
    Empirical,
    Exponential,
    LogNormal,
    Uniform,
    whole,
)
from lab.simulator.workload.synthetic import Closed, Open
from lab.simulator.workload.tenants import Independent, Recorded, Tenant

RATES = st.floats(0.01, 1000)
MANY = 20_000


def firsts(workload: Workload, count: int, seed: str = "a") -> list[Conversation]:
    return list(islice(workload.conversations(random.Random(seed)), count))


def arrivals() -> st.SearchStrategy[Arrivals]:
    durations = st.builds(Exponential, RATES)
    return (
        st.builds(Poisson, RATES)
        | st.builds(Deterministic, RATES)
        | st.builds(Gamma, RATES, st.floats(0.1, 4))
        | st.builds(lambda on, off: OnOff(10 / on.mean, on, off), durations, durations)
    )


def tenants() -> st.SearchStrategy[Sequence[Tenant]]:
    lengths = st.builds(Independent, st.builds(Uniform, st.just(0), st.floats(0, 99)), st.builds(Constant, RATES))
    recorded = st.builds(Recorded, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
    one = st.builds(
        Tenant,
        lengths | recorded,
        st.text(max_size=3),
        st.floats(0.1, 9),
        st.builds(Uniform, st.just(0), st.floats(0, 5)),
        st.builds(Exponential, RATES),
        st.integers(0, 99),
    )
    return st.lists(one, min_size=1, max_size=3, unique_by=lambda each: each.name)


WORKLOADS: st.SearchStrategy[Workload] = st.builds(Open, arrivals(), tenants()) | st.builds(
    Closed, st.integers(1, 9), tenants(), st.builds(Exponential, RATES)
)


@given(WORKLOADS, st.text())
def test_conversations_come_in_order_and_are_those_of_the_seed(workload: Workload, seed: str) -> None:
    found = firsts(workload, 30, seed)
    assert found == firsts(workload, 30, seed)
    assert len(found) == 30 and len({each.name for each in found}) == 30
    assert all(0 <= one.start <= other.start for one, other in pairwise(found))
    turns = [turn for each in found for turn in each.turns]
    assert all(each.turns for each in found)
    assert all(turn.prompt_tokens >= 1 and turn.output_tokens >= 1 and turn.think >= 0 for turn in turns)
    assert all(each.turns[0].prompt_tokens > each.prefix for each in found)


@pytest.mark.parametrize(
    ("process", "rate", "cv"),
    [
        (Poisson(4.0), 4.0, 1.0),
        (Deterministic(4.0), 4.0, 0.0),
        (Gamma(4.0, 0.5), 4.0, 0.5),
        (Gamma(4.0, 3.0), 4.0, 3.0),
        (OnOff(8.0, Exponential(10.0), Exponential(10.0)), 4.0, None),
        (OnOff(4.0, Constant(2.0), Constant(0.0)), 4.0, 1.0),  # never off is Poisson
    ],
)
def test_arrivals_have_their_rate_and_their_variation(process: Arrivals, rate: float, cv: float | None) -> None:
    times = list(islice(process.times(random.Random("a")), MANY))
    assert MANY / times[-1] == pytest.approx(rate, rel=0.1)
    gaps = [later - at for at, later in pairwise([0.0, *times])]
    if cv is None:
        assert pstdev(gaps) / fmean(gaps) > 1.5
    else:
        assert pstdev(gaps) / fmean(gaps) == pytest.approx(cv, rel=0.05, abs=1e-6)


def test_nothing_arrives_while_it_is_off() -> None:
    times = islice(OnOff(50.0, Constant(1.0), Constant(3.0)).times(random.Random("a")), 1000)
    assert all(at % 4.0 < 1.0 for at in times)


@pytest.mark.parametrize(
    ("distribution", "mean", "deviation"),
    [
        (Constant(7.0), 7.0, 0.0),
        (Uniform(2.0, 8.0), 5.0, 6 / 12**0.5),
        (Exponential(5.0), 5.0, 5.0),
        (LogNormal(500.0, 0.8), 500.0, 400.0),
        (Empirical((1.0, 1.0, 4.0)), 2.0, 2**0.5),
    ],
)
def test_distributions_have_their_mean_and_deviation(distribution: Distribution, mean: float, deviation: float) -> None:
    rng = random.Random("a")
    drawn = [distribution.draw(rng) for _ in range(MANY)]
    assert fmean(drawn) == pytest.approx(mean, rel=0.05)
    assert pstdev(drawn) == pytest.approx(deviation, rel=0.1)


@given(st.floats(0.1, 1e4), st.floats(0.05, 3), st.floats(0, 1e4), st.floats(0, 1e4), st.integers())
def test_bounded_lengths_stay_within_their_bounds(mean: float, cv: float, a: float, b: float, seed: int) -> None:
    least, most = sorted((a, b))
    rng = random.Random(seed)
    assert least <= LogNormal(mean, cv, least, most).draw(rng) <= most
    assert whole(LogNormal(mean, cv, least, most), rng) >= 1


def test_tenants_have_their_shares_prefixes_and_turns() -> None:
    chat = Tenant(Independent(Constant(10), Constant(5)), "chat", 3.0, Constant(2), Constant(30), prefix=100)
    code = Tenant(Recorded([(40, 2)]), "code", 1.0)
    found = firsts(Open(Poisson(1.0), [chat, code]), 4000)
    of_chat = [each for each in found if each.tenant == "chat"]
    assert len(of_chat) / 4000 == pytest.approx(0.75, rel=0.05)
    assert {each.prefix for each in of_chat} == {100}
    assert {tuple((turn.prompt_tokens, turn.output_tokens, turn.think) for turn in each.turns) for each in of_chat} == {
        ((110, 5, 0.0), (10, 5, 30.0))
    }


def test_what_changes_for_one_tenant_leaves_arrivals_and_the_texts_of_others_alone() -> None:
    """Common random numbers: two fleets, or two settings of a workload, meet the same chance."""
    other = Tenant(Independent(Uniform(1, 100), Uniform(1, 100)), "other")
    tenant = Tenant(Independent(Uniform(1, 100), Constant(9)), "one")
    before = firsts(Open(Poisson(1.0), [other, tenant]), 200)
    after = firsts(Open(Poisson(1.0), [other, replace(tenant, turns=Uniform(1, 9), prefix=7)]), 200)
    assert [each.start for each in before] == [each.start for each in after]
    assert [each for each in before if each.tenant == "other"] == [each for each in after if each.tenant == "other"]
    assert before != after


def test_users_of_a_closed_loop_pause_before_each_conversation() -> None:
    tenant = Tenant(Independent(Constant(1), Constant(1)), turns=Constant(2), think=Constant(5))
    found = firsts(Closed(3, [tenant], Constant(20)), 10)
    assert {each.start for each in found} == {0.0}
    assert {tuple(turn.think for turn in each.turns) for each in found} == {(20.0, 5.0)}


def test_users_of_a_closed_loop_begin_one_after_the_other_within_the_ramp() -> None:
    found = firsts(Closed(4, [Tenant(Independent(Constant(1), Constant(1)))], ramp=10.0), 6)
    assert [each.start for each in found] == [0.0, 2.5, 5.0, 7.5, 0.0, 0.0], "a later one begins as another ends"


def test_a_device_is_there_for_its_share_of_the_time() -> None:
    periods = list(islice(ComesAndGoes(Exponential(30.0), Exponential(10.0), 1.0).periods(random.Random("a")), 5000))
    assert all(start < end for start, end in periods)
    assert all(end <= start for (_, end), (start, _) in pairwise(periods))
    assert sum(end - start for start, end in periods) / periods[-1][1] == pytest.approx(0.75, rel=0.05)
    assert periods[0][0] == 0.0
    assert list(Always().periods(random.Random("a"))) == [(0.0, float("inf"))]


def test_so_many_devices_are_there_at_first() -> None:
    device = ComesAndGoes(Constant(5.0), Constant(10.0), 0.3)
    at_first = [next(device.periods(random.Random(f"phone {number}")))[0] for number in range(2000)]
    assert set(at_first) == {0.0, 10.0}
    assert at_first.count(0.0) / 2000 == pytest.approx(0.3, rel=0.15)
