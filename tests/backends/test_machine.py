"""How many rows fit, and how many threads pay."""

import os

import pytest

from backends.machine import AUTO_ROWS_AT_MOST, available_bytes, rows_that_fit, threads_for

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


def test_memory_of_this_machine() -> None:
    assert available_bytes() > 16 * MIB


@pytest.mark.parametrize(
    ("cores", "model_bytes", "threads"),
    [
        (1, 8000 * MIB, 1),
        (2, 8000 * MIB, 2),
        (4, 8000 * MIB, 4),
        (16, 8000 * MIB, 8),  # the others are siblings
        (4, 0, 1),
        (4, 31 * MIB, 1),  # small models: threads would wait for each other more than work
        (4, 32 * MIB, 2),
    ],
)
def test_threads(cores: int, model_bytes: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert threads_for(model_bytes) == threads
