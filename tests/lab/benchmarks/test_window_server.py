"""The steps in throughput that are due to lost jobs, and only to these."""

from dataclasses import replace

import pytest

from lab.benchmarks.simulator_findings.window_server import Windowed, run


def test_one_drafter_has_no_company() -> None:
    found = run(Windowed(), 1, 4000.0)
    assert (found.rows, found.stuck) == (1.0, 0)
    assert found.round_trip == pytest.approx(24 + 20 + 10 + 37 + 20)


def test_lost_jobs_make_the_step() -> None:
    setting, drafters = Windowed(loses=True), 40
    lost = run(setting, drafters, 10_000.0)
    assert lost.stuck > 10
    for harmless in (replace(setting, loses=False), replace(setting, unevenness=0.01)):
        found = run(harmless, drafters, 10_000.0)
        assert found.stuck == 0 and found.tokens > 1.3 * lost.tokens
    full = run(setting, 80, 10_000.0)
    assert full.stuck < 5 and full.rows > 7.9, "no window is waited for"


def test_where_batches_are_full() -> None:
    setting = Windowed()
    assert round(setting.full_from()) == 54
    assert run(setting, 44, 10_000.0).rows < 7.5 < 7.9 < run(setting, 58, 10_000.0).rows
