"""Engines that take as long as stated ones."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from backends.recurrent import JOINED
from backends.scripted import ScriptedBackend
from lab.simulator.costs.cost import LinearCost
from lab.simulator.paced import engine as paced
from lab.simulator.paced.engine import TARGET_25, Paced, PassPacer, load_paced_llama
from specpair.engines.backend import Backend, Entry, Logits
from specpair.engines.errors import EngineFailure
from specpair.engines.load_options import LoadOptions
from tests.stand_ins.clock import Time
from tests.stand_ins.tiny_architectures import write_tiny_architecture

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


def test_tokens_that_are_read_again_take_their_time(tmp_path: Path) -> None:
    path, time = tmp_path / "mamba2.gguf", Time()
    write_tiny_architecture("mamba2", path)
    pace = PassPacer(LinearCost(10.0, 0.5, 0.0), time.clock, time.sleep)

    def took(backend: Backend, start: int, count: int) -> float:
        before = time.now
        backend.extend([Entry(0, start, [*range(10, 10 + count)], count - 1)])
        return 1e3 * (time.now - before)

    with closing(load_paced_llama(LoadOptions(path, 1, 256, threads=1), pace)) as backend:
        assert took(backend, 0, 20) == pytest.approx(10.0 + 19 * 0.5)
        assert took(backend, 20, 5) == pytest.approx(10.0 + 4 * 0.5)
        assert backend.reread(0, 23) == 3
        assert took(backend, 23, 2) == pytest.approx(10.0 + (3 + 1) * 0.5), "three were accepted"
        assert took(backend, 25, JOINED + 5) == pytest.approx(10.0 + (JOINED + 4) * 0.5)
        assert took(backend, 25 + JOINED + 2, 1) == pytest.approx(10.0 + (JOINED + 1) * 0.5 + 10.0), "in its own pass"
