"""Columns of tables in the terminal."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from specpair.command_line.table import columns_in


@given(st.lists(st.integers(1, 30), min_size=2, max_size=20), st.integers(1, 120))
def test_columns_stand_once_each_behind_the_first(widths: list[int], room: int) -> None:
    parts = columns_in(widths, room)
    assert [column for part in parts for column in part[1:]] == [*range(1, len(widths))]
    assert all(part[0] == 0 for part in parts)
    assert all(len(part) == 2 or 1 + sum(widths[column] + 2 for column in part) <= room for part in parts)
    for part, following in pairwise(parts):
        assert 1 + sum(widths[column] + 2 for column in (*part, following[1])) > room
