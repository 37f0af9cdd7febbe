"""Laws of agreement: as stated, or the shares of a real run."""

import json
import random
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from lab.simulator.virtual.agreement import (
    ANY,
    BadProfile,
    ByPosition,
    Judged,
    Profile,
    Stretches,
    constant,
    read_profile,
    shipped_profile,
    shipped_profiles,
)

FILE = {
    "target": "big",
    "draft": "small",
    "measured": "today",
    "kinds": {"code": {"judged": [40, 30], "accepted": [30, 15]}, "story": {"judged": [60], "accepted": [10]}},
}


def test_a_stated_law_holds_by_position_and_its_last_chance_behind() -> None:
    law = ByPosition((0.9, 0.7))
    assert [law.chance(position) for position in range(4)] == [0.9, 0.7, 0.7, 0.7]
    assert constant(0.8).of_text("code", random.Random(0))(5, 9) == 0.8


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


def test_a_profile_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(FILE), encoding="utf-8")
    profile = read_profile(path)
    assert [profile.chance(position, "code") for position in (0, 1, 9)] == [0.75, 0.5, 0.5]
    assert [profile.chance(position) for position in (0, 1)] == [0.4, 0.5]


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
    with pytest.raises(BadProfile, match="it is not JSON"):
        read_profile(path)


def test_profiles_ship_by_name() -> None:
    for name in shipped_profiles():
        assert 0.0 < read_profile(shipped_profile(name)).chance(0) < 1.0
    with pytest.raises(BadProfile, match="no profile 'gpt'"):
        shipped_profile("gpt")


def test_a_text_has_the_law_of_its_kind_or_that_of_all_texts() -> None:
    profile = Profile.of([Judged("code", 0, True), Judged("prose", 0, False)])
    chances = [profile.of_text(kind, random.Random(0))(0, 3) for kind in ("code", "prose", "chat", ANY)]
    assert chances == [1.0, 0.0, 0.5, 0.5]


def test_stretches_have_their_lengths_and_their_chances() -> None:
    law = Stretches(0.9, 0.3, 20.0, 5.0)
    chance = law.of_text(ANY, random.Random("a"))
    chances = [chance(0, at) for at in range(50_000)]
    assert set(chances) == {0.9, 0.3}
    stretches = [(of, len([*group])) for of, group in groupby(chances)]
    for of, mean in ((0.9, 20.0), (0.3, 5.0)):
        assert fmean(length for each, length in stretches if each == of) == pytest.approx(mean, rel=0.1)
    assert fmean(chances) == pytest.approx((0.9 * 20 + 0.3 * 5) / 25, rel=0.03)
    again = law.of_text(ANY, random.Random("a"))
    assert again(0, 49_999) == chances[-1] and again(7, 17) == chances[17], "whichever position is asked for first"
