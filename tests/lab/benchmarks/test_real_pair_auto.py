"""Mode auto over the courses of its modes."""

import pytest

from drafter_client.options import Mode
from lab.benchmarks.real_pair.auto import MODES, Burst, auto
from lab.benchmarks.real_pair.machines import HERE

STEP = HERE.target.cost.seconds([(1, 0)])


def course(seconds: float, burst: int, tokens: int, agreed: int) -> list[Burst]:
    return [Burst(at * seconds, burst, agreed) for at in range(1, (tokens - 1) // burst + 1)]


def test_auto_stays_in_the_mode_that_is_the_fastest() -> None:
    courses = {
        Mode.TARGET: course(STEP, 1, 61, 1),
        Mode.FUSED: course(4 * STEP, 3, 61, 3),
        Mode.REMOTE: course(2 * STEP, 6, 61, 6),
    }
    took, stretches = auto(HERE, courses, 61)
    assert stretches == "remote 60" and took == pytest.approx(courses[Mode.REMOTE][-1].at)


def test_a_change_goes_on_where_the_text_is_and_takes_time() -> None:
    slow = course(8 * STEP, 2, 201, 1)
    courses = {Mode.TARGET: course(STEP, 1, 201, 0), Mode.FUSED: slow, Mode.REMOTE: slow}
    took, stretches = auto(HERE, courses, 201)
    counts = [int(each.split()[1]) for each in stretches.split(", ")]
    assert sum(counts) == 200 and stretches.split(", ")[-1].startswith("target")
    assert 200 * STEP < took < slow[-1].at
    assert set(MODES) == set(courses)
