"""Laws of agreement: as stated, or the shares of a real run."""

import pytest

from simulator.virtual.agreement import ByPosition, Judged, Profile, constant


def test_a_stated_law_holds_by_position_and_its_last_chance_behind() -> None:
    law = ByPosition((0.9, 0.7))
    assert [law.chance(position) for position in range(4)] == [0.9, 0.7, 0.7, 0.7]
    assert constant(0.8).chance(5, "code") == 0.8


@pytest.mark.parametrize("chances", [(), (0.5, 1.5), (-0.1,)])
def test_what_is_no_law_is_refused(chances: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="chances from 0 to 1"):
        ByPosition(chances)


def test_a_profile_has_the_shares_of_each_kind_and_puts_thin_positions_together() -> None:
    outcomes = [Judged("code", 0, number % 4 > 0) for number in range(40)]
    outcomes += [Judged("code", 1, True), Judged("code", 2, False), Judged("prose", 0, False)]
    profile = Profile.of(outcomes)
    assert [profile.chance(position, "code") for position in (0, 1, 2, 9)] == [0.75, 0.5, 0.5, 0.5]
    assert profile.chance(0, "prose") == 0.0


def test_a_kind_without_texts_and_a_run_without_outcomes_are_refused() -> None:
    with pytest.raises(ValueError, match="choose one of code"):
        Profile.of([Judged("code", 0, True)]).chance(0, "poem")
    with pytest.raises(ValueError, match="at least one"):
        Profile.of([])
