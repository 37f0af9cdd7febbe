"""How many rows fit."""

import pytest

from backends.memory import AUTO_ROWS_AT_MOST, available_bytes, default_threads, rows_that_fit

MIB = 2**20


@pytest.mark.parametrize(
    ("per_row", "available", "rows"),
    [
        (MIB, 40 * MIB, 10),  # a quarter
        (MIB, 39 * MIB, 9),
        (MIB, 3 * MIB, 1),  # one is tried in any case
        (MIB, 0, 1),
        (1, 10**12, AUTO_ROWS_AT_MOST),
        (0, MIB, AUTO_ROWS_AT_MOST),  # an engine without a cache
    ],
)
def test_rows_that_fit(per_row: int, available: int, rows: int) -> None:
    assert rows_that_fit(per_row, available) == rows


def test_this_machine() -> None:
    assert available_bytes() > 16 * MIB
    assert default_threads() >= 1
