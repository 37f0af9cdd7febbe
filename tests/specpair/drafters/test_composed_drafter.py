"""A draft model that reads parts of a text predicts as one that was fed exactly these parts, at the true positions."""

import random
from collections.abc import Iterator, Sequence
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import Script, ScriptedBackend
from specpair.drafters.base import read_prompt
from specpair.drafters.composed_drafter import ComposedDrafter, Reads, can_compose
from specpair.drafters.draft_model import ModelDrafter, expand_together
from specpair.drafters.shared_engine import SharedEngine
from specpair.drafters.warm_engine import PassTimes, WarmEngine
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import CacheFull
from specpair.speculation.drafting.composed_context import (
    ComposedContext,
    ContextRead,
    Span,
)
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.sampling.sampling import Sampling, choose_several, probabilities
from specpair.speculation.text_options import TextSpec
from tests.specpair.speculation.drafting.composed_parts import SIZES, parts, prompt_of

DRAWN = Sampling(seed=7, temperature=1.0)


class WholeContext(ScriptedBackend):
    """Its next token depends on every token that a slot holds, not on the last few."""

    def logits_after(self, tokens: Sequence[int]) -> Logits:
        return super().logits_after([sum(tokens) % 251, len(tokens) % 251, *tokens[-1:]])


def backend(slots: int = 4, context_length: int = 128) -> WholeContext:
    return WholeContext(Script(seed=2), slots=slots, context_length=context_length, max_batch_tokens=16)


def ticks(whole: float, parts: float) -> Iterator[float]:
    """A clock by which draft steps over all of a text and over its parts take these seconds, in this order."""
    yield 0.0  # of the first draft step, which reads
    for seconds in [*[whole] * 4, *[parts] * 4]:
        yield 0.0
        yield seconds
    yield from repeat(0.0)


def never() -> bool:
    return False


@pytest.mark.parametrize("branches", [1, 3])
@given(
    st.integers(60, 300),
    st.lists(st.tuples(st.integers(0, 299), st.integers(1, 6), st.integers(0, 3)), min_size=1, max_size=10),
)
def test_predictions_are_those_of_the_parts(branches: int, length: int, steps: list[tuple[int, int, int]]) -> None:
    text, engine = prompt_of(length), backend()
    drafter = ComposedDrafter(engine, DRAWN, 258, prompt_len=length, sizes=SIZES)
    shadow = ComposedContext(length, SIZES)
    oracle = backend(1, 512)
    for place, count, branch in steps:
        tails = [[], [branch], [branch, 5]][:branches]
        found = drafter.expand(text, tails, 2).proposals
        shadow.follow(text)
        for tail, proposal in zip(tails, found, strict=True):
            oracle.release(0)
            fed = [*parts(shadow, text), *tail]
            assert engine.held[drafter_slot(engine, fed)] == fed
            for at in range(0, len(fed), 16):
                rows = oracle.extend([Entry(0, at, fed[at : at + 16], 0)])[0]
            chosen = choose_several(rows[-1], DRAWN, len(text) + len(tail), 3)
            assert proposal == Proposal.of(chosen, probabilities(rows[-1], chosen, DRAWN))
        text = [*text, *text[place % length : place % length + count]]


@given(
    st.integers(60, 300),
    st.lists(st.tuples(st.integers(0, 299), st.integers(1, 6), st.integers(0, 3)), min_size=1, max_size=10),
)
def test_pieces_read_between_steps_leave_what_the_slots_hold_in_order(
    length: int, steps: list[tuple[int, int, int]]
) -> None:
    text, engine, oracle = prompt_of(length), backend(), backend(1, 512)
    drafter = ComposedDrafter(engine, DRAWN, 258, prompt_len=length, sizes=SIZES)
    drafter.expand(text, [[]], 0)
    drafter.read_between_steps(never)
    for place, count, passes in steps:
        text = [*text, *text[place % length : place % length + count]]
        found = drafter.expand(text, [[], [passes], [passes, 5]], 2)
        held = drafter.held
        if held is not None:
            parts = [Span(0, SIZES.sink), *held.pieces, Span(held.window, len(text))]
            fed = [token for part in parts for token in text[part.start : part.end]]
            assert fed in engine.held
            oracle.release(0)
            for at in range(0, len(fed), 16):
                rows = oracle.extend([Entry(0, at, fed[at : at + 16], 0)])[0]
            chosen = choose_several(rows[-1], DRAWN, len(text), 3)
            assert found.proposals[0] == Proposal.of(chosen, probabilities(rows[-1], chosen, DRAWN))
        left = iter([False] * passes)
        drafter.read_between_steps(lambda left=left: next(left, True))  # type: ignore[misc]


def test_a_piece_for_which_there_is_no_time_is_read_in_steps() -> None:
    text, engine = prompt_of(400), backend()
    drafter = ComposedDrafter(engine, DRAWN, 258, prompt_len=400, sizes=SIZES)
    drafter.expand(text, [[]], 0)
    drafter.read_between_steps(never)
    text = [*text, *text[50:53]]
    read = [drafter.expand(text, [[]], 0).read]
    while not drafter.context_read.pieces:
        text = [*text, 9]
        read.append(drafter.expand(text, [[]], 0).read)
    assert read == [3, *[1] * 15, 1 + 5, 1 + 5, 1 + 2]


def drafter_slot(engine: WholeContext, fed: list[int]) -> int:
    return next((slot for slot, held in enumerate(engine.held) if held == fed), 0)


class Full(WholeContext):
    """Finds no room in the pass after `more` others."""

    more: int | None = None

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self.more is not None:
            self.more -= 1
            if self.more < 0:
                self.more = None
                raise CacheFull("no room")
        return super()._forward(batch)


@pytest.mark.parametrize("seed", range(6))
def test_texts_that_share_passes_predict_each_after_its_own_parts(seed: int) -> None:
    """In each step, a text goes on with some of its tokens, a pass may find no room, and a text may begin a turn."""
    chance, oracle = random.Random(seed), backend(1, 512)
    engine = Full(Script(seed=2), slots=6, context_length=128, max_batch_tokens=16)
    shared, texts = SharedEngine(engine), [prompt_of(chance.randint(60, 200)) for _ in range(3)]
    drafters = [ComposedDrafter(shared.view(2, 8), DRAWN, 258, prompt_len=len(text), sizes=SIZES) for text in texts]
    pieces = 0
    for _ in range(20):
        engine.more = chance.choice([None, chance.randint(0, 5)])
        found = expand_together([(drafter, text, []) for drafter, text in zip(drafters, texts, strict=True)])
        for drafter, text, expansion in zip(drafters, texts, found, strict=True):
            held = drafter.held
            assert held is not None and drafter.context_read.of == len(text)
            spans = (Span(0, min(SIZES.sink, held.window)), *held.pieces, Span(held.window, len(text)))
            fed = [token for span in spans for token in text[span.start : span.end]]
            oracle.release(0)
            for at in range(0, len(fed), 16):
                row = oracle.extend([Entry(0, at, fed[at : at + 16], 0)])[0][-1]
            chosen = choose_several(row, DRAWN, len(text), 1)
            assert expansion.proposals == [Proposal.of(chosen, probabilities(row, chosen, DRAWN))]
            assert fed in engine.held
            assert drafter.context_read.read == len(fed)
            pieces += len(held.pieces)
        places = [chance.randrange(len(text) - 40) for text in texts]
        texts = [[*text, *text[at : at + chance.randint(1, 8)]] for text, at in zip(texts, places, strict=True)]
        if chance.random() < 0.3 and (held := drafters[0].held) is not None:
            view = drafters[0].backend
            view.release(1 - held.slot)
            drafters[0] = ComposedDrafter(view, DRAWN, 258, prompt_len=len(texts[0]), sizes=SIZES, held=held)
    assert pieces > 20


def test_a_long_prompt_is_drafted_for_after_its_parts() -> None:
    text, engine = prompt_of(400), backend()
    drafter = ComposedDrafter(engine, DRAWN, 258, prompt_len=400, sizes=SIZES)
    assert drafter.begun == 400 - 16
    assert read_prompt(drafter, text, drafter.begun, never, lambda: True) == 16 == engine.fed
    assert drafter.context_read == ContextRead(4, 0, 12, 400)
    assert drafter.expand([*text, 9], [[]], 0).read == 1


def test_the_first_pieces_are_given_up_for_the_first_copy() -> None:
    text, engine = prompt_of(400), backend()
    drafter = ComposedDrafter(engine, DRAWN, 258, prompt_len=400, sizes=SIZES)
    assert read_prompt(drafter, text, drafter.begun, never, never) == 16 + 12 == engine.fed
    assert drafter.context_read == ContextRead(4, 12, 12, 400), "the window begins earlier"
    for place in (50, 120):
        text = [*text, *text[place : place + 3]]
        drafter.expand(text, [[]], 0)
    assert (
        drafter.held is not None and [50 + 3 in each or 120 + 3 in each for each in drafter.held.pieces] == [True] * 2
    )


def test_all_is_read_where_there_is_time_and_a_step_costs_no_more() -> None:
    text, engine, times = prompt_of(100), backend(), ticks(1.2, 1.0)
    drafter = ComposedDrafter(
        engine, DRAWN, 258, prompt_len=100, sizes=SIZES, reads=Reads.PARTS_FIRST, clock=lambda: next(times)
    )
    read_prompt(drafter, text, drafter.begun, never, never)
    assert drafter.context_read == ContextRead(0, 0, 100, 100) and drafter.held is None
    plain = ModelDrafter(backend(), DRAWN, 258, prompt_len=100)
    for at in range(0, 100, 16):
        plain.expand(text[: at + 16], [[]], 0)
    for grown in (text, [*text, 3], [*text, 3, 4]):
        assert drafter.expand(grown, [[], [8]], 1).proposals == plain.expand(grown, [[], [8]], 1).proposals


@pytest.mark.parametrize("reason", ["slow", "answered", "full", "too long"])
def test_the_parts_stay_where_all_does_not_pay(reason: str) -> None:
    class FullAbove(WholeContext):
        def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
            if reason == "full" and batch[0].start > 50:
                raise CacheFull("no room")
            return super()._forward(batch)

    length = 120 if reason == "too long" else 100
    text, engine = prompt_of(length), FullAbove(Script(seed=2), slots=4, context_length=128, max_batch_tokens=16)
    times = ticks(1.3, 1.0)
    drafter = ComposedDrafter(
        engine, DRAWN, 258, prompt_len=length, sizes=SIZES, reads=Reads.PARTS_FIRST, clock=lambda: next(times)
    )
    read_prompt(drafter, text, drafter.begun, never, lambda: reason == "answered" and engine.fed > 60)
    assert drafter.context_read.window == 12
    assert drafter.expand([*text, 9], [[]], 0).read == 1
    assert sorted(map(len, engine.held)) == [0, 0, 0, drafter.context_read.read]


class FullAt(WholeContext):
    """Has no room for one pass, by its number; 0: for none of them."""

    full = 0
    passes = 0

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        self.passes += 1
        if self.passes == self.full:
            raise CacheFull("no room")
        return super()._forward(batch)


@pytest.mark.parametrize("full", range(1, 24))
def test_wherever_there_is_no_room_drafting_goes_on(full: int) -> None:
    text, engine = prompt_of(100), FullAt(Script(seed=2), slots=4, context_length=128, max_batch_tokens=16)
    drafter = ComposedDrafter(
        engine, DRAWN, 258, prompt_len=100, sizes=SIZES, reads=Reads.PARTS_FIRST, clock=lambda: next(times)
    )
    times = ticks(1.3, 1.0)
    engine.full = full
    read_prompt(drafter, text, drafter.begun, never, never)
    for _ in range(20):
        text = [*text, text[len(text) - 60]]
        assert len(drafter.expand(text, [[], [9]], 0).proposals) == 2
        drafter.read_between_steps(never)
    assert drafter.held is not None and len(engine.held[drafter.held.slot]) >= drafter.context_read.read


def test_slots_that_were_emptied_behind_a_drafter_hold_nothing_of_its_text() -> None:
    for prompt in (prompt_of(500), prompt_of(9000)):
        engine = ScriptedBackend(Script(seed=5), slots=3, context_length=4096)
        warm = WarmEngine(engine, PassTimes(0.001, 0.01))
        drafter_of(warm, prompt).expand(prompt, [[]], 0)
        assert warm.shared([*prompt, 1], "") == len(prompt)
        for slot in range(engine.slots):
            engine.release(slot)
        assert warm.shared([*prompt, 1], "") == 0
        assert len(drafter_of(warm, [*prompt, 1]).expand([*prompt, 1], [[]], 0).proposals) == 1


def test_a_piece_without_room_is_done_without() -> None:
    class FullBeside(WholeContext):
        def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
            if self.length(batch[0].slot) == 4 == batch[0].start and sum(map(bool, self.held)) > 1:
                raise CacheFull("no room")
            return super()._forward(batch)

    engine = FullBeside(Script(seed=2), slots=4, context_length=128, max_batch_tokens=16)
    text = prompt_of(200)
    drafter = ComposedDrafter(engine, DRAWN, 258, prompt_len=200, sizes=SIZES)
    drafter.expand(text, [[]], 0)
    drafter.expand([*text, *text[100:104]], [[]], 0)
    assert drafter.context_read.pieces == 0
    assert drafter.expand([*text, *text[100:104], 9], [[]], 0).read == 1


def test_an_engine_of_one_slot_or_without_splices_composes_nothing() -> None:
    assert can_compose(backend(), SIZES)
    assert not can_compose(backend(slots=1), SIZES) and not can_compose(backend(context_length=63), SIZES)
    engine = backend()
    engine.can_splice = False
    assert not can_compose(engine, SIZES)


def drafter_of(warm: WarmEngine, prompt: list[int]) -> ModelDrafter:
    return warm.drafter(TextSpec(), 258, prompt, "")


def test_a_warm_turn_reads_what_is_new_and_keeps_the_pieces() -> None:
    engine = ScriptedBackend(Script(seed=5), slots=3, context_length=4096, max_batch_tokens=512)
    warm = WarmEngine(engine, PassTimes(0.001, 0.01))
    prompt = prompt_of(9000)
    first = drafter_of(warm, prompt)
    assert isinstance(first, ComposedDrafter)
    first.expand(prompt, [[]], 0)
    text = [*prompt, *prompt[3000:3005]]
    first.expand(text, [[]], 0)
    assert first.context_read.pieces == 256 and engine.fed == 576 + 256 + 5
    second = drafter_of(warm, [*text, *range(1, 31)])
    assert second.begun == len(text) and second.expand([*text, *range(1, 31)], [[]], 0).read == 30
    assert second.context_read.pieces == 256
    other = drafter_of(warm, prompt_of(8000)[::-1])
    assert other.begun == 8000 - 576 and other.expand(prompt_of(8000)[::-1], [[]], 0).read == 576
    short = drafter_of(warm, [1, 2, 3])
    assert short.expand([1, 2, 3], [[]], 0).read == 3 and short.context_read == ContextRead(0, 0, 3, 3)


def test_a_text_that_outgrows_the_context_goes_on_with_its_parts() -> None:
    text, engine = prompt_of(120), backend()
    drafter = ComposedDrafter(engine, DRAWN, 258, prompt_len=120, sizes=SIZES, reads=Reads.ALL)
    assert drafter.expand(text, [[]], 0).read == 120
    text = [*text, *text[50:58]]
    assert drafter.expand(text, [[]], 0).read == 8 and drafter.context_read == ContextRead(0, 0, 128, 128)
    text = [*text, *text[58:61]]
    assert drafter.expand(text, [[]], 0).read == SIZES.sink + SIZES.window + SIZES.piece, "the piece is known"
    assert drafter.context_read == ContextRead(4, 12, 12, 131)


def test_steps_over_a_long_text_that_take_too_long_make_the_next_turn_read_parts() -> None:
    prompt = prompt_of(3000)
    for token, reads in ((0.0, 1), (1e-9, 576), (1e9, 1)):  # seconds of a step behind hardly any text
        warm = WarmEngine(ScriptedBackend(Script(seed=5), slots=3, context_length=4096), PassTimes(token, 0.0))
        first = drafter_of(warm, prompt)
        for length in (3000, 3001):
            first.expand([*prompt, 5][:length], [[]], 0)
        assert first.context_read.read == 3001
        second = drafter_of(warm, [*prompt, 5, 6])
        assert second.expand([*prompt, 5, 6], [[]], 0).read == reads
