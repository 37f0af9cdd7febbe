"""An engine at another pace: its logits, its rows and its limits, and passes that take what their cost says."""

import logging
from collections.abc import Sequence

import numpy as np
import pytest

from backends.scripted import ScriptedBackend
from lab.simulator.costs.linear import LinearCost
from lab.simulator.paced import engine as paced
from lab.simulator.paced.engine import DRAFTER_4, DRAFTER_8, TARGET_25, TARGET_80, Paced
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.errors import BadEntry, EngineFailure
from tests.stand_ins.clock import Time

COST = LinearCost(10.0, 0.5, 2.0)
BATCH = [Entry(0, 0, [1, 2, 3], 1), Entry(2, 0, [4, 5], 0)]


class Computing(ScriptedBackend):
    """Takes `seconds` of a `Time` for each pass, or `fails`."""

    seconds, fails = 0.004, False

    def __init__(self, time: Time) -> None:
        super().__init__()
        self.time = time

    def extend(self, batch: Sequence[Entry]) -> list[Logits]:
        self.time.now += self.seconds
        return super().extend(batch)

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self.fails:
            raise EngineFailure("a device went away")
        return super()._forward(batch)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def engine(time: Time) -> Computing:
    return Computing(time)


@pytest.fixture
def backend(engine: Computing, time: Time) -> Paced:
    return Paced(engine, COST, time.clock, time.sleep)


def test_all_attributes_of_the_contract_are_those_of_the_engine() -> None:
    engine = ScriptedBackend(slots=3, context_length=99, max_batch_tokens=33, max_rollback=7, can_copy=False)
    engine.chat_template, engine.kv_bytes = "{{ messages }}", 123
    backend = Paced(engine, COST)
    for name in Backend.__annotations__:
        assert getattr(backend, name) == getattr(engine, name), name


def test_logits_are_those_of_the_engine(backend: Paced) -> None:
    plain = ScriptedBackend().extend(BATCH)
    for ours, theirs in zip(backend.extend(BATCH), plain, strict=True):
        assert np.array_equal(ours, theirs)


def test_slots_hold_what_those_of_the_engine_hold(backend: Paced, engine: Computing) -> None:
    def lengths(of: Backend) -> list[int]:
        return [of.length(row) for row in range(of.slots)]

    backend.extend(BATCH)
    backend.extend([Entry(0, 2, [7, 8, 9], 0)])
    backend.copy(0, 1, 4)
    assert lengths(backend) == lengths(engine) == [5, 4, 2, 0]
    backend.release(0)
    assert lengths(backend) == lengths(engine) == [0, 4, 2, 0]
    with pytest.raises(BadEntry, match="leaves a gap"):
        backend.extend([Entry(1, 5, [1], 0)])
    assert lengths(backend) == lengths(engine) == [0, 4, 2, 0]


def test_a_failed_pass_empties_its_rows_and_is_not_waited_for(backend: Paced, engine: Computing, time: Time) -> None:
    backend.extend([Entry(0, 0, [1], 0), Entry(1, 0, [1], 0)])
    engine.fails = True
    time.slept.clear()
    with pytest.raises(EngineFailure):
        backend.extend([Entry(0, 1, [2], 0)])
    assert [backend.length(0), backend.length(1), engine.length(0), engine.length(1)] == [0, 1, 0, 1]
    assert time.slept == []


@pytest.mark.parametrize(
    ("batch", "milliseconds"),
    [
        ([Entry(0, 0, [1], 0)], 10.0),
        ([Entry(0, 0, [1] * 9, 0)], 10.0 + 8 * 0.5),
        ([Entry(0, 0, [1], 0), Entry(1, 0, [1], 0)], 10.0 + 0.5 + 2.0),
        (BATCH, 10.0 + 4 * 0.5 + 2.0),
    ],
)
def test_a_pass_takes_what_it_costs(backend: Paced, time: Time, batch: list[Entry], milliseconds: float) -> None:
    backend.extend(batch)
    assert time.now == pytest.approx(milliseconds / 1e3)
    assert time.slept == [pytest.approx(milliseconds / 1e3 - Computing.seconds)]
    assert (backend.pace.passes, backend.pace.late_passes, backend.pace.worst_overrun) == (1, 0, 0.0)


def test_passes_that_take_longer_are_counted_and_reported_once(
    backend: Paced, engine: Computing, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for seconds in (0.004, 0.013, 0.011):
        engine.seconds = seconds
        backend.extend([Entry(0, 0, [1], 0)])
    assert time.now == pytest.approx(0.010 + 0.013 + 0.011)
    assert (backend.pace.passes, backend.pace.late_passes) == (3, 2)
    assert backend.pace.worst_overrun == pytest.approx(0.003)
    with caplog.at_level(logging.INFO):
        backend.close()
        backend.close()
    assert caplog.messages == ["2 of 3 passes took longer than they cost, at worst by 3.00 ms"]


@pytest.mark.parametrize("cost", [TARGET_80, TARGET_25, DRAFTER_8, DRAFTER_4, COST])
def test_costs_are_read_as_they_are_written(cost: LinearCost) -> None:
    assert LinearCost.parse(str(cost)) == cost


@pytest.mark.parametrize("text", ["", "80", "80,1.6", "80,1.6,0.6,1", "80,-1,0", "80,x,0"])
def test_other_texts_are_no_costs(text: str) -> None:
    with pytest.raises(ValueError, match=r"cost|float"):
        LinearCost.parse(text)


def test_the_application_is_made_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERIFIER_BACKEND", "scripted")
    monkeypatch.setenv("VERIFIER_MODEL", "7")
    monkeypatch.setenv("PACED_TARGET", str(TARGET_25))
    service = paced.app.state.service
    service.loader.start()
    assert service.loader.wait(20)
    backend = service.engine.backend
    service.stop()
    assert isinstance(backend, Paced)
    assert (backend.pace.cost, backend.model_name) == (TARGET_25, "scripted-7")
    with pytest.raises(AttributeError):
        _ = paced.nothing
