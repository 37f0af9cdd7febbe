"""The formulas of queueing theory agree with each other, and with queues whose customers are followed one by one."""

import random
from collections.abc import Callable
from math import exp, factorial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.theory.intervals import batch_means, of_independent
from lab.simulator.theory.queues import (
    in_order_of_arrival,
    m_d_k,
    m_g_1,
    m_g_k,
    m_m_1_quantile,
    m_m_k,
    passes_of_slots,
    shorter_of_two,
    supermarket,
)
from lab.simulator.theory.reduced import poisson

LOADS = st.floats(0.05, 0.95)


@given(LOADS)
def test_one_server_is_a_case_of_each(load: float) -> None:
    assert m_g_1(load, 1.0, 2.0) == pytest.approx(1.0 / (1.0 - load)), "M/M/1"
    assert m_g_1(load, 1.0, 1.0) == pytest.approx(1.0 + load / (2.0 * (1.0 - load))), "M/D/1"
    assert m_m_k(load, 1.0, 1) == m_g_k(load, 1.0, 2.0, 1) == pytest.approx(1.0 / (1.0 - load))
    assert supermarket(load, 1) == pytest.approx(1.0 / (1.0 - load), rel=1e-6)
    assert m_m_1_quantile(load, 1.0, 1.0 - exp(-1.0)) == pytest.approx(1.0 / (1.0 - load)), "its mean"


@given(st.floats(0.05, 0.95), st.integers(1, 20))
def test_erlang_c(load: float, servers: int) -> None:
    """The recursion agrees with the formula as it is usually written."""
    offered = load * servers
    full = offered**servers / factorial(servers) / (1.0 - load)
    waits = full / (sum(offered**each / factorial(each) for each in range(servers)) + full)
    assert m_m_k(offered, 1.0, servers) == pytest.approx(1.0 + waits / (servers - offered))


@pytest.mark.parametrize(
    ("draw", "second_moment"),
    [
        (lambda rng: rng.expovariate(1.0), 2.0),
        (lambda rng: 1.0, 1.0),
        (lambda rng: rng.choice((0.25, 0.25, 3.0, 0.5)), (2 * 0.0625 + 9.0 + 0.25) / 4),
    ],
)
def test_customers_one_by_one(draw: Callable[[random.Random], float], second_moment: float) -> None:
    rng = random.Random(5)
    services = [draw(rng) for _ in range(100_000)]
    one = batch_means(in_order_of_arrival(poisson(0.7, len(services), rng), services, 1))
    assert one.holds(m_g_1(0.7, 1.0, second_moment)), one
    four = batch_means(in_order_of_arrival(poisson(4 * 0.7, len(services), rng), services, 4))
    assert four.mean == pytest.approx(m_g_k(4 * 0.7, 1.0, second_moment, 4), rel=0.03), "an approximation"
    if second_moment == 2.0:
        assert four.holds(m_m_k(4 * 0.7, 1.0, 4)), four


def test_constant_services() -> None:
    """Crommelin's series is Pollaczek and Khinchine's formula for one server, and holds for customers one by one."""
    assert m_d_k(0.8, 1.0, 1) == pytest.approx(m_g_1(0.8, 1.0, 1.0))
    arrivals = poisson(4 * 0.8, 100_000, random.Random(6))
    mean = batch_means(in_order_of_arrival(arrivals, [1.0] * len(arrivals), 4))
    assert mean.holds(m_d_k(4 * 0.8, 1.0, 4)), mean


def test_two_choices_among_many_are_near_the_limit() -> None:
    rng = random.Random(7)
    arrivals = poisson(200 * 0.8, 100_000, rng)
    services = [rng.expovariate(1.0) for _ in arrivals]
    mean = batch_means(
        shorter_of_two(arrivals, services, ((rng.randrange(200), rng.randrange(200)) for _ in arrivals), 200)
    )
    assert mean.mean == pytest.approx(supermarket(0.8, 2), rel=0.05)
    alone = shorter_of_two(arrivals, services, ((0, 0) for _ in arrivals), 1)
    assert alone == pytest.approx(in_order_of_arrival(arrivals, services, 1)), "no choice"


def test_short_passes_are_servers() -> None:
    """With passes that are short beside a text, slots are servers with one queue."""
    off = [passes_of_slots(2.8, 1.0 / each, each, 4) / m_m_k(2.8, 1.0, 4) - 1.0 for each in (0.2, 0.05, 0.0125)]
    assert off[0] > 0.04 and abs(off[2]) < 0.006
    assert off[0] > 3 * off[1] > 9 * off[2] > 0


def test_two_choices_gain_without_bound() -> None:
    """Mitzenmacher: as the load goes to 1, one choice's time grows as two choices' to a power."""
    gains = [supermarket(load, 1) / supermarket(load, 2) for load in (0.9, 0.95, 0.99)]
    assert gains == sorted(gains) and gains[0] > 3.5 and gains[2] > 15
    assert supermarket(0.9, 2) == pytest.approx(sum(0.9 ** (2**level - 2) for level in range(1, 9)), abs=1e-9)


@pytest.mark.parametrize("load", [1.0, 1.5])
def test_an_overloaded_queue_has_no_time(load: float) -> None:
    times: tuple[Callable[[], float], ...] = (
        lambda: m_g_1(load, 1.0, 2.0),
        lambda: m_m_k(3 * load, 1.0, 3),
        lambda: m_d_k(3 * load, 1.0, 3),
        lambda: supermarket(load, 2),
        lambda: passes_of_slots(3 * load, 10.0, 0.1, 3),
        lambda: m_m_1_quantile(load, 1.0, 0.5),
    )
    for time in times:
        with pytest.raises(ValueError, match="must be above 0 and below 1"):
            time()


def test_an_interval_holds_the_mean_as_often_as_it_says() -> None:
    rng = random.Random(3)
    held = sum(of_independent([rng.gauss(4.0, 1.0) for _ in range(8)]).holds(4.0) for _ in range(4000))
    assert 0.94 < held / 4000 < 0.96
    assert of_independent([2.0, 4.0] * 50).half == pytest.approx(1.984 * 1.00504 / 10, rel=1e-3)
