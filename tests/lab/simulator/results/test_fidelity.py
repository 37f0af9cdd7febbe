"""The error of drafters by table is that of their requests beside those of the probes."""

import math

import pytest

from lab.simulator.fleet.record import Record, Status
from lab.simulator.results.fidelity import Fidelity


def _record(by_table: bool | None, seconds_a_token: float, sent: float = 5.0) -> Record:
    times = [sent + 0.1 + seconds_a_token * number for number in range(11)]
    return Record("c", 0, "t", 10, 11, sent, times=times, drafted=20, accepted=10, by_table=by_table)


def test_equal_requests_make_no_error() -> None:
    found = Fidelity(begin=1.0)
    for by_table in (True, False):
        for each in (0.02, 0.03, 0.04):
            found.add(_record(by_table, each))
    assert found.errors() == pytest.approx(dict.fromkeys(found.errors(), 0.0)) and found.count == 3
    assert 0.1 < found.doubt() < 1.0, "three texts tell little"


def test_slower_texts_by_table_are_seen_and_others_do_not_count() -> None:
    found = Fidelity(begin=1.0)
    found.add(_record(True, 0.03))
    found.add(_record(False, 0.02))
    found.add(_record(True, 9.0, sent=0.5))  # sent in the burn-in
    found.add(_record(None, 9.0))  # neither by table nor a probe
    aborted = _record(False, 9.0)
    aborted.status = Status.ABORTED
    found.add(aborted)
    errors = found.errors()
    assert errors["tpot_p50_ms"] == pytest.approx(0.5, abs=0.003)
    assert errors["tokens_per_second"] == pytest.approx(2 / 3 - 1)
    assert "beside 1 requests of probes: tokens/s of a text -33.3%" in found.line()


def test_without_requests_there_is_no_error() -> None:
    assert Fidelity().line() == "" and all(math.isnan(each) for each in Fidelity().errors().values())
