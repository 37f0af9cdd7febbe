"""Links, sizes of messages, shared devices, draft engines and laws of agreement in virtual time."""

import json
import random
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafter_client.http.retries import FIRST_PAUSE, LONGEST_PAUSE
from lab.simulator.costs.cost import SequencePass
from lab.simulator.virtual.agreement import (
    BadProfile,
    read_profile,
    shipped_profile,
    shipped_profiles,
)
from lab.simulator.virtual.draft_engine import DraftEngine
from lab.simulator.virtual.network import Direction, Network
from lab.simulator.virtual.world import EventLoop, SharedDevice

MESSAGES = st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1e5)), min_size=1, max_size=20)


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


def _ends(passes: list[tuple[float, float]]) -> list[float]:
    """When passes end, each given by its begin and how long it takes alone."""
    loop, ends = EventLoop(), [0.0] * len(passes)
    device = SharedDevice(loop)
    for number, (begin, seconds) in enumerate(passes):
        loop.at(begin, partial(device.run, seconds, partial(lambda at: ends.__setitem__(at, loop.now), number)))
    loop.run()
    return ends


@given(st.lists(st.floats(min_value=0.001, max_value=10.0), min_size=1, max_size=6), st.floats(0.0, 0.001))
def test_no_work_is_lost_and_none_is_made(seconds: list[float], gap: float) -> None:
    ends = _ends([(number * gap, each) for number, each in enumerate(seconds)])
    assert max(ends) == pytest.approx(sum(seconds))
    assert all(end >= number * gap + each - 1e-9 for number, (end, each) in enumerate(zip(ends, seconds, strict=True)))


FILE = {
    "target": "big",
    "draft": "small",
    "measured": "today",
    "kinds": {"code": {"judged": [40, 30], "accepted": [30, 15]}, "story": {"judged": [60], "accepted": [10]}},
}


def test_a_profile_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(FILE), encoding="utf-8")
    profile = read_profile(path)
    assert [profile.chance(position, "code") for position in (0, 1, 9)] == [0.75, 0.5, 0.5]
    assert [profile.chance(position) for position in (0, 1)] == [0.4, 0.5]
    assert profile.chance(0, "prose") == 0.4, "of all kinds together"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kinds": {}}, "kinds"),
        ({"kinds": {"code": {"judged": [3], "accepted": [4]}}}, "more draft tokens are accepted than judged"),
        ({"kinds": {"code": {"judged": [3], "accepted": []}}}, "1 positions are judged and 0 accepted"),
        ({"shares": 1}, "shares"),
    ],
)
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(FILE | change), encoding="utf-8")
    with pytest.raises(BadProfile, match=message):
        read_profile(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(BadProfile, match="Invalid JSON"):
        read_profile(path)


def test_profiles_ship_by_name() -> None:
    for name in shipped_profiles():
        assert 0.0 < read_profile(shipped_profile(name)).chance(0) < 1.0
    with pytest.raises(BadProfile, match="no profile 'gpt'"):
        shipped_profile("gpt")


class Passes:
    """A cost of one second a pass that keeps what the passes were."""

    def __init__(self) -> None:
        self.batches: list[list[SequencePass]] = []

    def seconds(self, sequences: Sequence[SequencePass]) -> float:
        self.batches.append([*sequences])
        return 1.0


def test_calls_that_come_during_a_pass_share_the_next_one() -> None:
    loop, cost, done = EventLoop(), Passes(), list[tuple[str, float]]()
    engine = DraftEngine(loop, cost, batch_tokens=4)
    cost.batches.clear()

    def call(name: str, tokens: int) -> None:
        engine.run([(tokens, 10)], lambda: done.append((name, loop.now)))

    for at, name, tokens in ((0.0, "a", 1), (0.2, "b", 1), (0.4, "c", 4), (0.6, "d", 2)):
        loop.at(at, lambda name=name, tokens=tokens: call(name, tokens))  # type: ignore[misc]
    loop.run()
    assert done == [("a", 1.0), ("b", 2.0), ("d", 2.0), ("c", 3.0)], "c does not fit beside b, and d does"
    assert cost.batches == [[(1, 10)], [(1, 10), (2, 10)], [(4, 10)]]
