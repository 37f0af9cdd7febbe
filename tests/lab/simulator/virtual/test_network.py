"""When messages arrive: bytes take their time one after the other, lost ones are sent again."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.http.retries import FIRST_PAUSE, LONGEST_PAUSE
from lab.simulator.virtual.network import Direction, Network

MESSAGES = st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1e5)), min_size=1, max_size=20)


def test_a_message_takes_half_the_round_trip_and_its_bytes() -> None:
    assert Direction(Network(0.04), random.Random(0)).arrival(1.0, 1e6) == 1.02
    slow = Direction(Network(0.04, bandwidth=1e5), random.Random(0))
    assert slow.arrival(1.0, 5e4) == pytest.approx(1.52)
    assert slow.arrival(1.1, 1e4) == pytest.approx(1.62), "it follows the one before"
    assert slow.arrival(9.0, 1e4) == pytest.approx(9.12), "the link was free"


@given(MESSAGES, st.floats(1e3, 1e8), st.floats(0.0, 1.0))
def test_a_direction_carries_no_more_than_its_bandwidth(
    messages: list[tuple[float, float]], bandwidth: float, rtt: float
) -> None:
    direction, now, arrivals = Direction(Network(rtt, bandwidth=bandwidth), random.Random(0)), 0.0, []
    for gap, size in messages:
        now += gap
        arrivals.append((direction.arrival(now, size), size))
        assert arrivals[-1][0] >= now + rtt / 2 + size / bandwidth - 1e-9
    for (before, _), (after, size) in pairwise(arrivals):
        assert after >= before + size / bandwidth - 1e-9


def test_a_lost_message_is_sent_again_after_the_pauses_of_the_client() -> None:
    """The last pauses are as long as the client's longest."""
    network, pauses = Network(0.1, outages=((0.0, 20.0),)), [FIRST_PAUSE * 2**number for number in range(6)]
    assert max(pauses) < LONGEST_PAUSE < 2 * max(pauses)
    sent = sum(pauses)
    while sent < 20.0:
        sent += LONGEST_PAUSE
    assert Direction(network, random.Random(0)).arrival(0.0, 10.0) == pytest.approx(sent + 0.05)


def test_others_do_not_wait_for_a_message_that_was_lost() -> None:
    direction = Direction(Network(0.1, outages=((0.0, 0.05),), bandwidth=1e6), random.Random(0))
    lost, next_one = direction.arrival(0.0, 1e3), direction.arrival(0.06, 1e3)
    assert lost == pytest.approx(0.1 + 0.05 + 1e-3) and next_one == pytest.approx(0.06 + 0.05 + 1e-3)


def test_jitter_and_loss_have_the_stated_means() -> None:
    network, rng = Network(0.1, jitter=0.02, loss=0.1), random.Random(1)
    takes = [network.takes(0.0, rng) for _ in range(20_000)]
    there = [each for each in takes if each is not None]
    assert 1 - len(there) / len(takes) == pytest.approx(0.1, abs=0.01)
    assert sum(there) / len(there) == pytest.approx(0.07, abs=0.002)
    recorded = Network(0.02, recorded=(0.02, 0.06))
    assert {recorded.takes(0.0, rng) for _ in range(50)} == {0.01, 0.03}
