"""Passes that share a device slow each other down, and leave it idle only where there is none."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.virtual.shared_device import SharedDevice
from lab.simulator.virtual.world import EventLoop


def _ends(passes: list[tuple[float, float]]) -> list[float]:
    """When passes end, each given by its begin and how long it takes alone."""
    loop, ends = EventLoop(), [0.0] * len(passes)
    device = SharedDevice(loop)
    for number, (begin, seconds) in enumerate(passes):
        loop.at(begin, partial(device.run, seconds, partial(lambda at: ends.__setitem__(at, loop.now), number)))
    loop.run()
    return ends


def test_two_passes_take_twice_as_long_while_both_run() -> None:
    assert _ends([(0.0, 10.0)]) == [10.0]
    assert _ends([(0.0, 10.0), (20.0, 5.0)]) == [10.0, 25.0]
    assert _ends([(0.0, 10.0), (6.0, 2.0)]) == [12.0, 10.0]
    assert _ends([(0.0, 10.0), (0.0, 10.0)]) == [20.0, 20.0]


@given(st.lists(st.floats(min_value=0.001, max_value=10.0), min_size=1, max_size=6), st.floats(0.0, 0.001))
def test_no_work_is_lost_and_none_is_made(seconds: list[float], gap: float) -> None:
    ends = _ends([(number * gap, each) for number, each in enumerate(seconds)])
    assert max(ends) == pytest.approx(sum(seconds))
    assert all(end >= number * gap + each - 1e-9 for number, (end, each) in enumerate(zip(ends, seconds, strict=True)))
