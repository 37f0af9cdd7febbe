"""The bisection, with fleets of one line: that break somewhere, never, at once, by chance."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.capacity.bisection import Boundary, Range, Wanted, bisect, boundary

CEILING = 1000
starts = st.integers(1, CEILING)


def searched(holds: Callable[[int], bool], within: Range, checks: int = 0) -> tuple[Boundary, dict[int, bool]]:
    tried: dict[int, bool] = {}

    def noted(count: int) -> bool:
        assert count not in tried, "each is tried once"
        assert within.floor <= count <= within.ceiling
        tried[count] = holds(count)
        return tried[count]

    bisect(noted, within, checks)
    return boundary(tried, within.wanted), tried


@given(starts, st.integers(0, CEILING + 1), st.integers(0, 3))
def test_the_most_is_found_where_more_never_helps(start: int, most: int, checks: int) -> None:
    found, tried = searched(lambda count: count <= most, Range(start, 1, CEILING), checks)
    assert found.inside == (min(most, CEILING) or None)
    assert found.outside == (most + 1 if most < CEILING else None)
    assert found.against == () and len(tried) <= 22 + checks


@given(starts, st.integers(1, CEILING + 1))
def test_so_is_the_least_where_more_never_hurts(start: int, least: int) -> None:
    found, _ = searched(lambda count: count >= least, Range(start, 1, CEILING, "least"))
    assert found.inside == (least if least <= CEILING else None)
    assert found.outside == (min(least - 1, CEILING) or None)


@given(starts, st.integers(1, CEILING - 1), st.floats(0, 1))
def test_a_precision_ends_it_sooner_with_a_boundary_that_is_as_narrow(start: int, most: int, precision: float) -> None:
    found, _ = searched(lambda count: count <= most, Range(start, 1, CEILING, precision=precision))
    assert found.inside is not None and found.outside is not None
    assert found.inside <= most < found.outside
    assert found.outside - found.inside <= max(1, precision * found.inside)


@given(starts, st.sets(st.integers(1, CEILING)), st.sampled_from(["most", "least"]), st.integers(0, 5))
def test_whatever_holds_it_ends_and_its_answer_was_tried(
    start: int, good: set[int], wanted: Wanted, checks: int
) -> None:
    found, tried = searched(lambda count: count in good, Range(start, 1, CEILING, wanted), checks)
    harder = 1 if wanted == "most" else -1
    held = [count for count, holds in tried.items() if holds]
    assert found.inside == (max(held, key=lambda count: harder * count) if held else None)
    assert found.outside is None or tried[found.outside] is False
    for broken, other in found.against:
        assert (tried[broken], tried[other]) == (False, True) and harder * broken < harder * other
    lost = [count for count, holds in tried.items() if not holds and held and harder * count < harder * max(held)]
    assert wanted == "least" or len(found.against) == len(lost)


def test_checks_are_in_the_widest_gaps_and_tell_of_what_breaks_below() -> None:
    found, tried = searched(lambda count: count <= 20 and count != 10, Range(20, 1, CEILING), checks=2)
    assert list(tried) == [20, 40, 30, 25, 22, 21, 10, 15]
    assert found == Boundary(20, 21, ((10, 15),))


@pytest.mark.parametrize(("wanted", "holds"), [("most", True), ("least", False)])
def test_what_never_changes_ends_at_the_greatest_count(wanted: Wanted, holds: bool) -> None:
    _, tried = searched(lambda count: holds, Range(30, 1, 100, wanted))
    assert list(tried) == [30, 60, 100]
