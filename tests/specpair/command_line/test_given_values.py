"""Lists of ascending numbers, as text or as numbers."""

import pytest

from specpair.command_line.given_values import ascending


@pytest.mark.parametrize(
    ("value", "numbers"), [("1,4,16", (1, 4, 16)), ("8", (8,)), (" 1, 2 ", (1, 2)), ([1, 2], (1, 2)), ((3,), (3,))]
)
def test_numbers_are_read(value: str | list[int], numbers: tuple[int, ...]) -> None:
    assert ascending(value) == numbers


@pytest.mark.parametrize("value", ["", "0,1", "4,1", "1,1", "1;2", "1,,2", "-1", "1.5", [], [2, 1], ["a"]])
def test_other_values_are_refused(value: str | list[int]) -> None:
    with pytest.raises(ValueError, match="is not a list of ascending numbers such as 1,4,16"):
        ascending(value)
