"""How many slots fit into memory, and how many threads are used."""

import os
from pathlib import Path

import pytest

from backends import machine
from backends.machine import MOST_AUTO_SLOTS, available_bytes, cores, slots_that_fit, threads_for

MIB = 2**20


@pytest.mark.parametrize(
    ("per_slot", "available", "slots"),
    [
        (MIB, 40 * MIB, 10),  # a quarter
        (MIB, 39 * MIB, 9),
        (MIB, 3 * MIB, 1),  # at least one in any case
        (MIB, 0, 1),
        (1, 10**12, MOST_AUTO_SLOTS),
        (0, MIB, MOST_AUTO_SLOTS),  # an engine without a cache
    ],
)
def test_slots_that_fit_a_quarter_of_the_memory(per_slot: int, available: int, slots: int) -> None:
    assert slots_that_fit(per_slot, available) == slots


@pytest.mark.parametrize(
    ("cores", "model_bytes", "threads"),
    [
        (1, 8000 * MIB, 1),
        (2, 8000 * MIB, 2),
        (4, 8000 * MIB, 4),
        (16, 8000 * MIB, 8),  # the others are siblings
        (4, 0, 1),
        (4, 31 * MIB, 1),  # a small model, whose threads would wait longer than they compute
        (4, 32 * MIB, 2),
    ],
)
def test_threads_follow_cores_and_model_size(
    cores: int, model_bytes: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "CGROUP", Path("/nowhere"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert threads_for(model_bytes) == threads


def test_container_limits_memory_and_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    everything = available_bytes()
    assert cores() == 64
    for name, text in {"memory.max": "5000000", "memory.current": "2000000", "cpu.max": "250000 100000"}.items():
        (tmp_path / name).write_text(text + "\n")
    assert available_bytes() == 3_000_000
    assert cores() == 3
    for name, text in {"memory.max": "max", "cpu.max": "max 100000"}.items():
        (tmp_path / name).write_text(text + "\n")
    assert available_bytes() == pytest.approx(everything, rel=0.2)
    assert cores() == 64
