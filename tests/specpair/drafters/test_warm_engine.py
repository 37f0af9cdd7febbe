"""An engine reads only what a text does not share with the one before, and drafts as an empty one would."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script, ScriptedBackend
from specpair.drafters.draft_model import ModelDrafter, model_drafter
from specpair.drafters.warm_engine import WarmEngine, pass_times
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import EngineFailure
from specpair.speculation.text_options import TextSpec

SCRIPT = Script(seed=5)
PROMPT = [256, *range(60)]


def engine(slots: int = 3, **options: int | None) -> ScriptedBackend:
    return ScriptedBackend(SCRIPT, slots=slots, context_length=options.pop("context_length", 512) or 512, **options)  # type: ignore[arg-type]


def drafter_of(warm: WarmEngine, prompt: list[int], scope: str = "") -> ModelDrafter:
    return warm.drafter(TextSpec(), 258, prompt, scope)


def test_the_next_turn_reads_what_is_new() -> None:
    warm = WarmEngine(engine())
    first = drafter_of(warm, PROMPT)
    assert (first.begun, first.expand(PROMPT, [[]], False).read) == (0, 61)
    text = [*PROMPT, 7, 8]
    first.expand(text, [[], [9]], False)
    second = drafter_of(warm, [*text, 1, 2, 3])
    assert second.begun == len(text)
    assert second.expand([*text, 1, 2, 3], [[]], False).read == 3


def test_a_text_of_another_scope_reads_everything_and_leaves_nothing() -> None:
    backend = engine()
    warm = WarmEngine(backend)
    drafter_of(warm, PROMPT, "a").expand(PROMPT, [[], [1], [2]], False)
    assert warm.shared(PROMPT, "b") == 0
    other = drafter_of(warm, PROMPT, "b")
    assert [backend.length(slot) for slot in range(3)] == [0, 0, 0]
    assert other.expand(PROMPT, [[]], False).read == 61


def test_nothing_is_left_of_a_failed_step() -> None:
    class Failing(ScriptedBackend):
        fails = False

        def _forward(self, batch: object) -> list[object]:  # type: ignore[override]
            if self.fails:
                raise EngineFailure("a device went away")
            return super()._forward(batch)  # type: ignore[arg-type,return-value]

    backend = Failing(SCRIPT, slots=1, context_length=512)
    warm = WarmEngine(backend)
    drafter = drafter_of(warm, PROMPT)
    drafter.expand(PROMPT, [[]], False)
    backend.fails = True
    with pytest.raises(EngineFailure):
        drafter.expand([*PROMPT, 1], [[]], False)
    assert warm.shared(PROMPT, "") == 0


@given(st.lists(st.tuples(st.integers(1, 80), st.integers(0, 2), st.integers(1, 6)), min_size=1, max_size=6))
def test_predictions_are_those_of_an_empty_engine(texts: list[tuple[int, int, int]]) -> None:
    """Whatever the texts before left, with branches and with a window that slides."""
    warm = WarmEngine(engine(2, context_length=64))
    for shared, other, grows in texts:
        text = [*PROMPT[:shared], 100 + other, 101, 102]
        mine = drafter_of(warm, text)
        fresh = model_drafter(engine(2, context_length=64), TextSpec(), 258, len(text))
        for step in range(grows):
            tails = [[], [step, step]]
            expected = fresh.expand(text, tails, False).proposals
            assert mine.expand(text, tails, False).proposals == expected
            text = [*text, step]


FIRST, TOKEN, READ = 0.5, 0.02, 0.004  # seconds: more in the first pass of each kind, to draft, to read a token


class Timed(ScriptedBackend):
    """A pass over one token takes `TOKEN`, over more `READ` for each; the first of each kind `FIRST` more."""

    now = 0.0

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        (entry,) = batch
        kind = len(entry.tokens) > 1
        self.now += READ * len(entry.tokens) if kind else TOKEN
        self.now += 0.0 if kind in self.seen else FIRST
        self.seen.add(kind)
        return super()._forward(batch)

    seen: set[bool]


@pytest.mark.parametrize("how", [{}, {"max_batch_tokens": 4}, {"context_length": 9}, {"max_rollback": 0}], ids=str)
def test_the_shortest_passes_count_and_the_slot_is_empty_afterwards(how: dict[str, int]) -> None:
    backend = Timed(Script(), **how)  # type: ignore[arg-type]
    backend.seen = set()
    times = pass_times(backend, lambda: backend.now)
    assert (times.token, times.read) == pytest.approx((TOKEN, READ))
    assert backend.length(0) == 0
    assert backend.now < 2.0, "a slow engine is not timed for long"
