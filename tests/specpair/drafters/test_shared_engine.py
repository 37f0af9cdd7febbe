"""SharedEngine: calls of several threads share passes; results and errors reach only the threads concerned."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.drafters.draft_model import ModelDrafter, expand_together
from specpair.drafters.shared_engine import EngineView, SharedEngine
from specpair.engines.backend import Entry, Logits, Rows, TopLogitsSpec
from specpair.engines.errors import BackendError, CacheFull, EngineFailure
from specpair.speculation.sampling.sampling import Sampling
from specpair.speculation.sampling.top_logits import TopLogits
from tests.drafter_client.support import drafts_of, plain

SCRIPT = Script(seed=3)
TEXTS = [[256, *b"first"], [256, *b"the second"], [256, *b"a third one"]]


class Engine(ScriptedBackend):
    """Blocks in passes while the gate is closed, records batches, and fails in the passes listed in `faults`.

    Like an engine on a device, it overwrites earlier results and can fetch rows of the last pass only.
    """

    def __init__(self, slots: int = 6, max_batch_tokens: int = 64, has_top_logits: bool = False) -> None:
        super().__init__(SCRIPT, slots=slots, max_batch_tokens=max_batch_tokens, has_top_logits=has_top_logits)
        self.gate, self.entered = threading.Event(), threading.Event()
        self.gate.set()
        self.seen: list[list[Entry]] = []
        self.faults: dict[int, Exception] = {}  # by the number of the pass
        self.closed = False
        self.fetched = 0
        self._last: list[Logits] = []

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        self.entered.set()
        assert self.gate.wait(20)
        self.seen.append(list(batch))
        if len(self.seen) - 1 in self.faults:
            raise self.faults[len(self.seen) - 1]
        for rows in self._last:
            rows[:] = np.nan
        self._last = super()._forward(batch)
        return self._last

    def _extend_top_logits(self, batch: Sequence[Entry], wanted: Sequence[TopLogitsSpec]) -> list[Rows]:
        results, number = super()._extend_top_logits(batch, wanted), len(self.seen)
        for top in (top for rows in results for top in rows if isinstance(top, TopLogits)):
            top.full = self._only_while(number, top.full)
        return results

    def _only_while(self, number: int, fetch: Callable[[], Logits]) -> Callable[[], Logits]:
        def full() -> Logits:
            assert len(self.seen) == number, "another pass has run"
            self.fetched += 1
            return fetch()

        return full

    def close(self) -> None:
        super().close()
        self.closed = True


class Waiting(threading.Event):
    """What a call waits for. `arrived` counts those that wait."""

    def __init__(self, arrived: threading.Semaphore) -> None:
        super().__init__()
        self.arrived = arrived

    def wait(self, timeout: float | None = None) -> bool:
        self.arrived.release()
        return super().wait(timeout)


class Scene:
    """A pass that ends when the test says so, and calls that arrive meanwhile, each of which waits for an `event`."""

    def __init__(self, engine: Engine, threads: ThreadPoolExecutor) -> None:
        self.engine, self._threads = engine, threads
        self.arrived = threading.Semaphore(0)
        self.event: Callable[[threading.Semaphore], threading.Event] = Waiting
        self.shared = SharedEngine(engine, lambda: self.event(self.arrived))

    def call(self, do: Callable[[], Any]) -> Future[Any]:
        """Run `do` on a thread. Returns when its call waits for the engine."""
        future = self._threads.submit(do)
        assert self.arrived.acquire(timeout=20)
        return future

    def feed(self, view: EngineView, start: int, tokens: Sequence[int], slot: int = 0) -> Future[Any]:
        return self.call(lambda: view.extend([Entry(slot, start, tokens, 0)])[0])

    def block(self, view: EngineView) -> Future[Any]:
        """Start a pass of `view` that blocks until `unblock`."""
        self.engine.gate.clear()
        self.engine.entered.clear()
        held = self._threads.submit(lambda: view.extend([Entry(0, view.length(0), [7], 0)])[0])
        assert self.engine.entered.wait(20)
        return held

    def unblock(self) -> None:
        self.engine.gate.set()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def expected(text: Sequence[int]) -> Logits:
    return ScriptedBackend(SCRIPT).logits_after(text)


def test_calls_during_a_pass_run_together_in_the_next(threads: ThreadPoolExecutor) -> None:
    scene = Scene(Engine(), threads)
    first, *others = [scene.shared.view() for _ in range(4)]
    held = scene.block(first)
    calls = [scene.feed(view, 0, text) for view, text in zip(others, TEXTS, strict=True)]
    assert not any(call.done() for call in calls)
    scene.unblock()
    for call, text in zip(calls, TEXTS, strict=True):
        assert np.array_equal(call.result(20)[-1], expected(text))
    assert np.array_equal(held.result(20)[0], expected([7]))
    assert [len(batch) for batch in scene.engine.seen] == [1, 3]
    assert [list(entry.tokens) for entry in scene.engine.seen[1]] == TEXTS, "in order of arrival"


def test_calls_beyond_the_batch_limit_run_in_later_passes(threads: ThreadPoolExecutor) -> None:
    scene = Scene(Engine(max_batch_tokens=16), threads)
    first, *others = [scene.shared.view() for _ in range(5)]
    scene.block(first)
    texts = [[256, *range(count)] for count in (9, 11, 2, 15)]  # 10, 12, 3 and 16 tokens
    calls = [scene.feed(view, 0, text) for view, text in zip(others, texts, strict=True)]
    scene.unblock()
    for call, text in zip(calls, texts, strict=True):
        assert np.array_equal(call.result(20)[-1], expected(text))
    widths = [[len(entry.tokens) for entry in batch] for batch in scene.engine.seen]
    assert widths == [[1], [10, 3], [12], [16]]


@pytest.mark.parametrize("kept", [True, False], ids=["still held", "dropped"])
def test_whole_row_can_be_fetched_after_passes_of_others(kept: bool) -> None:
    engine = Engine(has_top_logits=True)
    shared = SharedEngine(engine)
    mine, other = shared.view(), shared.view()
    wanted = [TopLogitsSpec(4, 1.0, 200)]
    top = mine.extend_top_logits([Entry(0, 0, TEXTS[0], len(TEXTS[0]) - 1)], wanted)[0]
    if not kept:
        del top
    other.extend_top_logits([Entry(0, 0, TEXTS[1], len(TEXTS[1]) - 1)], wanted)
    assert engine.fetched == kept, "only rows in use are fetched"
    if kept:
        assert isinstance(top[0], TopLogits) and np.array_equal(top[0].whole(), expected(TEXTS[0])[:200])


@pytest.mark.parametrize("kind", [EngineFailure, CacheFull])
def test_error_is_raised_only_for_calls_of_the_failed_pass(
    threads: ThreadPoolExecutor, kind: type[BackendError]
) -> None:
    scene = Scene(Engine(), threads)
    first, second, third, fourth = (scene.shared.view() for _ in range(4))
    for view in (second, third, fourth):
        view.extend([Entry(0, 0, TEXTS[0], 0)])
    held = scene.block(first)
    calls = [scene.feed(view, len(TEXTS[0]), [5]) for view in (second, third)]
    scene.engine.faults = {4: kind("it broke")}
    scene.unblock()
    assert np.array_equal(held.result(20)[0], expected([7]))
    errors = [call.exception(20) for call in calls]
    assert [(type(error), str(error)) for error in errors] == [(kind, "it broke")] * 2
    assert errors[0] is not errors[1]
    assert [view.length(0) for view in (second, third, fourth)] == [0, 0, len(TEXTS[0])], "their slots are empty"
    assert np.array_equal(fourth.extend([Entry(0, len(TEXTS[0]), [5], 0)])[0][0], expected([*TEXTS[0], 5]))
    assert np.array_equal(second.extend([Entry(0, 0, TEXTS[1], 0)])[0][-1], expected(TEXTS[1]))


@pytest.mark.parametrize("told_to_lead", [False, True], ids=["in the queue", "when told to lead"])
def test_interrupted_thread_delays_no_other(threads: ThreadPoolExecutor, told_to_lead: bool) -> None:
    scene = Scene(Engine(), threads)
    first, second, third = (scene.shared.view() for _ in range(3))
    scene.block(first)
    signal = threading.Event()

    class Interrupted(Waiting):
        def wait(self, timeout: float | None = None) -> bool:
            if told_to_lead:
                assert super().wait(20)
            else:
                self.arrived.release()
                assert signal.wait(20)
            raise KeyboardInterrupt

    scene.event = Interrupted
    interrupted = scene.feed(second, 0, TEXTS[0])
    scene.event = Waiting
    other = scene.feed(third, 0, TEXTS[1])
    if told_to_lead:
        scene.unblock()
    signal.set()
    assert isinstance(interrupted.exception(20), KeyboardInterrupt)
    scene.unblock()
    assert np.array_equal(other.result(20)[-1], expected(TEXTS[1]))
    assert [len(batch) for batch in scene.engine.seen] == [1, 1]


def test_slots_are_lent_while_free_and_returned_empty() -> None:
    engine = Engine(slots=3)
    shared = SharedEngine(engine)
    one, two = shared.view(), shared.view(2)
    with pytest.raises(CacheFull, match="1 slots are requested, 0 of 3 are free"):
        shared.view()
    two.extend([Entry(0, 0, TEXTS[0], 0), Entry(1, 0, TEXTS[1], 0)])
    two.close()
    two.close()
    assert [engine.length(slot) for slot in range(3)] == [0, 0, 0]
    with pytest.raises(CacheFull):
        shared.view(3)
    again = shared.view(2)
    assert np.array_equal(again.extend([Entry(1, 0, TEXTS[2], 0)])[0][-1], expected(TEXTS[2]))
    assert one.length(0) == 0


@pytest.mark.parametrize("has_top_logits", [False, True], ids=["rows", "top logits"])
@pytest.mark.parametrize("slots", [1, 3])
def test_drafters_in_threads_draft_as_each_would_alone(
    threads: ThreadPoolExecutor, slots: int, has_top_logits: bool
) -> None:
    shared = SharedEngine(Engine(slots=3 * slots, max_batch_tokens=16, has_top_logits=has_top_logits))
    start = threading.Barrier(3)

    def draft(number: int) -> list[int]:
        view = shared.view(slots)
        drafter = ModelDrafter(view, Sampling(number, 0.9 * (number > 0)))
        start.wait(20)
        text = list(TEXTS[number])
        for _ in range(8):
            text += [each.token for each in drafts_of(drafter, text, 5)]
        view.close()
        return text[len(TEXTS[number]) :]

    for number, found in enumerate(threads.map(draft, range(3))):
        assert found == plain(ScriptedBackend(SCRIPT), TEXTS[number], 40, Sampling(number, 0.9 * (number > 0)))
    assert [shared.backend.length(slot) for slot in range(3 * slots)] == [0] * 3 * slots


def _together(engine: Engine, samplings: Sequence[Sampling]) -> tuple[SharedEngine, list[ModelDrafter]]:
    """A drafter for each text of `TEXTS`, all of them in one engine."""
    shared = SharedEngine(engine)
    return shared, [ModelDrafter(shared.view(), sampling) for sampling in samplings]


@pytest.mark.parametrize("top_logits", [False, True])
def test_a_draft_step_for_several_texts_is_one_pass(top_logits: bool) -> None:
    samplings = [Sampling(), Sampling(seed=2, temperature=0.8), Sampling(seed=3, temperature=1.1)]
    engine = Engine(has_top_logits=top_logits)
    _, drafters = _together(engine, samplings)
    drafted: list[list[int]] = [[] for _ in TEXTS]
    for step in range(4):
        found = expand_together(list(zip(drafters, TEXTS, drafted, strict=True)))
        for tail, expansion in zip(drafted, found, strict=True):
            tail.append(expansion.proposals[0].token)
        assert len(engine.seen) == step + 1
    assert [len(batch) for batch in engine.seen] == [3] * 4
    assert drafted == [
        plain(ScriptedBackend(SCRIPT), text, 4, sampling) for text, sampling in zip(TEXTS, samplings, strict=True)
    ]


def test_a_shared_draft_step_that_finds_no_room_is_run_again() -> None:
    engine = Engine()
    engine.faults = {0: CacheFull("the cache is full")}
    _, drafters = _together(engine, [Sampling()] * 3)
    found = expand_together([(each, text, []) for each, text in zip(drafters, TEXTS, strict=True)])
    assert len(found) == 3 and len(engine.seen) == 2
