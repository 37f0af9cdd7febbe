"""Fleets against theory: the real scheduler, its slots and the router, with a workload that is reduced to a queue."""

import random
from collections.abc import Callable

import pytest

from gateway.balancing.policies import Hash, Jsq2, Random
from lab.simulator.fleet.settings import DeviceKind, Mode
from lab.simulator.theory.intervals import batch_means, of_independent
from lab.simulator.theory.queues import in_order_of_arrival, m_g_1, m_m_1_quantile, passes_of_slots, supermarket
from lab.simulator.theory.reduced import (
    UNIT,
    Affine,
    LeastWork,
    batched,
    client_rates,
    geometric,
    key,
    poisson,
    times,
    whole,
)
from lab.simulator.theory.speculation import capacity_gain, latency, mean_rounds, remote_latency, tokens_per_round
from lab.simulator.virtual.network import Network

SERVICES: dict[str, tuple[Callable[[random.Random], float], float]] = {  # how they are drawn, and the second moment
    "exponential": (lambda rng: rng.expovariate(1.0), 2.0),
    "constant": (lambda rng: 1.0, 1.0),
    "two points": (lambda rng: rng.choice((0.25, 0.25, 3.0, 0.5)), (2 * 0.0625 + 9.0 + 0.25) / 4),
}


@pytest.mark.parametrize("name", SERVICES)
def test_a_verifier_with_one_slot_is_a_server(name: str) -> None:
    """M/M/1, M/D/1, M/G/1: each text has its time to the last digit, so the mean and its interval are theory's."""
    draw, second_moment = SERVICES[name]
    rng = random.Random(3)
    arrivals = poisson(0.7, 4000, rng)
    prompts = [whole(draw(rng)) for _ in arrivals]
    found = times(arrivals, prompts, policy=Hash)
    exact = in_order_of_arrival(arrivals, [each / UNIT for each in prompts], 1)
    assert found == pytest.approx(exact, abs=1e-8)
    mean = batch_means(found)
    assert mean.holds(m_g_1(0.7, 1.0, second_moment)), mean
    if name == "exponential":
        assert sorted(found)[int(0.9 * len(found))] == pytest.approx(m_m_1_quantile(0.7, 1.0, 0.9), rel=0.1)


@pytest.mark.parametrize("name", SERVICES)
def test_verifiers_that_take_the_least_work_are_servers_with_one_queue(name: str) -> None:
    """M/G/k."""
    draw, _ = SERVICES[name]
    rng = random.Random(4)
    arrivals = poisson(3 * 0.8, 800, rng)
    prompts = [whole(draw(rng)) for _ in arrivals]
    jobs = {
        key(at): (arrival, prompt / UNIT) for at, (arrival, prompt) in enumerate(zip(arrivals, prompts, strict=True))
    }
    found = times(arrivals, prompts, servers=3, policy=lambda: LeastWork(jobs))
    assert found == pytest.approx(in_order_of_arrival(arrivals, [service for _, service in jobs.values()], 3), abs=1e-8)


def test_slots_of_a_batch_are_servers() -> None:
    """M/M/k, in passes: texts of geometric length share passes of equal times, and lose their slots by turns."""
    rng, slots, mean, pass_time = random.Random(6), 4, 10.0, 0.1
    rate = 0.6 * slots / (mean * pass_time)
    arrivals = poisson(rate, 3000, rng)
    outputs = [geometric(mean, rng) for _ in arrivals]
    kind = batched(Affine(pass_time, 0.0), slots)
    found = batch_means(times(arrivals, [2] * len(arrivals), kind=kind, outputs=outputs, policy=Hash))
    assert found.holds(passes_of_slots(rate, mean, pass_time, slots)), found
    assert found.half < 0.1 * found.mean


def test_two_choices() -> None:
    """Mitzenmacher: of 20 verifiers at nine tenths of their capacity, two choices are as good as theory has it for very
    many, and one choice is far worse."""
    rng, load, many = random.Random(2), 0.9, 20
    arrivals = poisson(load * many, 3000, rng)
    prompts = [whole(rng.expovariate(1.0)) for _ in arrivals]
    two = batch_means(times(arrivals, prompts, servers=many, policy=Jsq2))
    assert two.holds(supermarket(load, 2)), two
    one = batch_means(times(arrivals, prompts, servers=many, policy=Random))
    assert one.mean > 2 * two.mean


def test_capacity_of_a_server_that_need_not_draft() -> None:
    """arXiv 2606.25091: with 1 + k t_d / t_v times the clients, each is served at the same rate."""
    length, draft, verify, agreement, clients = 4, 0.002, 0.02, 0.8, 10
    device = DeviceKind(Network(0.01), Mode.LOCKSTEP, Affine(0.01, 0.0), length)
    more = round(clients * capacity_gain(length, draft, verify))
    assert more == 14
    for count, takes in ((clients, verify + length * draft), (more, verify)):
        kind = batched(Affine(0.0, takes), 64)
        rates = of_independent(client_rates(count, kind, device, output=200, agreement=agreement))
        assert rates.holds(tokens_per_round(agreement, length) / (clients * (verify + length * draft))), rates


def test_a_text_has_whole_rounds() -> None:
    assert mean_rounds(1, 0.8, 4) == mean_rounds(1, 0.0, 4) == 1.0
    assert mean_rounds(50, 0.0, 4) == 50.0
    assert mean_rounds(5000, 0.8, 4) == pytest.approx(5000 / tokens_per_round(0.8, 4), rel=1e-3)


def test_the_latency_of_remote_drafters() -> None:
    """Alone nobody waits. With many texts all passes follow each other, and each has the drafts of the one before."""
    assert remote_latency(30.0, 0.04, 0.005, 0.001, 1e-6) == pytest.approx(30.0 * 0.046, rel=1e-4)
    assert remote_latency(30.0, 0.04, 0.005, 0.001, 33.0) > 30.0 * (0.04 + 1.5 * 0.005 / (1.0 - 0.99))
    with pytest.raises(ValueError, match="must be below 1"):
        remote_latency(30.0, 0.04, 0.005, 0.001, 34.0)


def test_latency_under_load() -> None:
    """arXiv 2605.15051: with what a text alone takes and what each other one adds, the load gives the mean."""
    rng, output = random.Random(7), 100
    arrivals = poisson(5.0, 250, rng)
    kind = batched(Affine(0.020, 0.001), 256)
    found = batch_means(times(arrivals, [2] * 250, kind=kind, outputs=[output] * 250, policy=Hash), batches=10)
    assert found.holds(latency(output * 0.021, output * 0.001, 5.0)), found
    with pytest.raises(ValueError, match="must be below 1"):
        latency(2.0, 0.1, 10.0)
