"""Slots, turns and failures: how sessions affect each other in the engine."""

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import CacheFull, EngineFailure, EngineLost
from specpair.protocol.errors import EngineError, ShuttingDown, SpecPairError, UnknownSession
from tests.verifier_server.engine.bench import Asked, Bench, plain
from verifier_server.engine.arrived_drafts import Answer
from verifier_server.engine.engine import Engine

SCRIPT = Script(seed=8)
PROMPTS = [[256, number, 2, 3] for number in range(6)]
TEXTS = [plain(SCRIPT, prompt, 80) for prompt in PROMPTS]


class Faulty(ScriptedBackend):
    """Raises `fault` in the given passes, or returns `value` for the given slots, once each."""

    def __init__(
        self,
        fault: Exception | None = None,
        passes: Sequence[int] = (),
        nan_for: Sequence[int] = (),
        value: float = np.nan,
    ) -> None:
        super().__init__(SCRIPT, slots=3, context_length=128, max_batch_tokens=64)
        self.fault, self.faulty_passes, self.nan_for = fault, set(passes), set(nan_for)
        self.value = value

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        logits = super()._forward(batch)
        if self.passes in self.faulty_passes and self.fault is not None:
            raise self.fault
        for entry, rows in zip(batch, logits, strict=True):
            if entry.slot in self.nan_for:
                self.nan_for.discard(entry.slot)
                rows[:] = self.value
        return logits


@pytest.mark.parametrize("fault", [EngineFailure("a device went away"), CacheFull("no room")], ids=repr)
def test_a_failed_pass_is_an_error_and_the_text_is_right_afterwards(fault: Exception) -> None:
    bench = Bench(backend=Faulty(fault, passes=[2]))
    sessions = [bench.open(prompt) for prompt in PROMPTS[:3]]
    bench.run(*(bench.ask(session, 4) for session in sessions))
    asked = [bench.ask(session, 5, text[1:4]) for session, text in zip(sessions[:2], TEXTS, strict=False)]
    bench.run(*asked)
    for each in asked:
        with pytest.raises(EngineError, match=f"the engine failed: {fault}"):
            _ = each.answer
    for session, text in zip(sessions, TEXTS, strict=False):
        assert bench.verify(session, 5, text[1:4]).tokens == text[1:5]
    assert bench.backend.fed == 3 * 4 + 2 * 4 + 2 * 8 + 4, "only the slots of the failed pass were recomputed"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_overflow_of_one_session_does_not_fail_the_others(value: float) -> None:
    bench = Bench(backend=Faulty(nan_for=[1], value=value))
    sessions = [bench.open(prompt) for prompt in PROMPTS[:3]]
    asked = [bench.ask(session, 4) for session in sessions]
    bench.run(*asked)
    with pytest.raises(EngineError, match="NaN or infinity"):
        _ = asked[1].answer
    assert [asked[number].answer.tokens for number in (0, 2)] == [TEXTS[0][:1], TEXTS[2][:1]]
    assert bench.verify(sessions[1], 4).tokens == TEXTS[1][:1]
    assert bench.verify(sessions[0], 5, TEXTS[0][1:3]).tokens == TEXTS[0][1:4]


def test_a_forgotten_session_frees_its_slot_and_fails_its_requests() -> None:
    bench = Bench(SCRIPT, slots=2)
    gone, stays = bench.open(PROMPTS[0]), bench.open(PROMPTS[1])
    bench.run(bench.ask(gone, 4), bench.ask(stays, 4))
    waiting = [bench.ask(gone, 5), bench.ask(gone, 5, [1]), bench.ask(stays, 5)]
    bench.engine.forget(gone)
    bench.engine.forget(gone)
    bench.run(*waiting)
    for each in waiting[:2]:
        with pytest.raises(UnknownSession, match="session-1 was deleted while its request was waiting"):
            _ = each.answer
    assert waiting[2].answer.tokens == TEXTS[1][1:2]
    assert bench.slot(gone) is None
    assert [bench.backend.length(slot) for slot in range(2)] == [0, 5]


class Thread:
    """An engine with its thread, over a backend that waits at a gate in every pass."""

    def __init__(self) -> None:
        outer = self
        self.entered, self.gate = threading.Semaphore(0), threading.Semaphore(0)

        class Gated(ScriptedBackend):
            def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
                outer.entered.release()
                assert outer.gate.acquire(timeout=10)
                return super()._forward(batch)

        self.bench = Bench(backend=Gated(SCRIPT))
        self.engine: Engine = self.bench.engine
        self.engine.start()

    def ask(self, number: int) -> Asked:
        return self.bench.ask(self.bench.open(PROMPTS[number]), 4)


def test_stopping_finishes_the_running_pass_and_fails_waiting_requests() -> None:
    thread = Thread()
    running = thread.ask(0)
    assert thread.entered.acquire(timeout=10)
    waiting = thread.ask(1)
    stopper = threading.Thread(target=thread.engine.stop)
    stopper.start()
    while thread.engine.ended is None and stopper.is_alive():
        pass
    thread.gate.release()
    stopper.join(10)
    assert running.answer.tokens == TEXTS[0][:1]
    for late in (waiting, thread.ask(2)):
        with pytest.raises(ShuttingDown, match="the verifier is shutting down"):
            _ = late.answer


def test_a_shutdown_that_comes_between_passes_ends_the_thread() -> None:
    """It comes while the thread makes the calls for which its next pass waits."""
    bench, told = Bench(), threading.Event()
    session = bench.open(PROMPTS[0])
    bench.engine.forget(session)  # so that the request is answered between passes

    def shut_down(_: Answer | SpecPairError) -> None:
        bench.engine.shut_down()
        told.set()

    bench.ask(session, 4).request.done = shut_down
    bench.engine.start()
    assert told.wait(10)
    after_its_end = threading.Thread(target=bench.engine.check_integrity, daemon=True)
    after_its_end.start()
    after_its_end.join(10)
    assert not after_its_end.is_alive()


@pytest.mark.parametrize("fault", [EngineLost("a device went away"), RuntimeError("a bug")], ids=["lost", "bug"])
def test_the_end_of_an_engine_is_told_when_no_request_waits_any_more(fault: Exception) -> None:
    bench, told, over = Bench(backend=Faulty(fault, passes=[1])), list[bool](), threading.Event()

    def failed() -> None:
        told.append(all(each.results for each in asked))
        over.set()

    bench.engine = Engine(bench.scheduler, on_failure=failed)
    asked = [bench.ask(bench.open(prompt), 4) for prompt in PROMPTS]
    bench.engine.start()
    assert over.wait(10) and told == [True]
    bench.engine.stop()
    assert told == [True]
