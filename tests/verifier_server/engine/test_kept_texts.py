"""Texts that have ended are kept in their slots; what a slot lacks is read again."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.scripted import ScriptedBackend
from specpair.engines.backend import Entry, Logits
from specpair.speculation.sampling.sampling import Sampling
from tests.verifier_server.engine.bench import Bench, plain
from tests.verifier_server.engine.virtual import SCRIPT, World, opened
from verifier_server.sessions import Session

SYSTEM = [256, *range(100), *range(100)]  # 201 tokens


def make_world(slots: int = 3, *, can_copy: bool = True, step: int = 1, rest: int = 1, **options: Any) -> World:
    backend = ScriptedBackend(SCRIPT, slots=slots, context_length=4096, max_batch_tokens=512, can_copy=can_copy)
    backend.reuse_step, backend.reuse_rest = step, rest
    return World(backend, **options)


def ended(world: World, prompt: list[int], *, owner: str = "", tokens: int = 20) -> Session:
    """A session whose text has ended after `tokens` tokens, and that was removed."""
    session = session_of(world, prompt, owner=owner, tokens=tokens)
    world.ask(session, until_end=True)
    while session.finish_reason is None:
        world.run(world.now + 1.0)
    assert session.tokens[len(prompt) :] == plain(SCRIPT, prompt, tokens), "whatever was kept, the text is the same"
    world.scheduler.forget(session)
    return session


def session_of(world: World, prompt: list[int], *, owner: str = "", tokens: int = 20) -> Session:
    session = world.open(prompt, max_tokens=tokens)
    session.scope = owner or None
    return session


def read(world: World, prompt: list[int], **given: Any) -> int:
    """How many tokens of a prompt a new text has to read."""
    before = world.backend.fed
    session = ended(world, prompt, tokens=1, **given)
    assert session.cached == len(prompt) - (world.backend.fed - before)
    return world.backend.fed - before


@pytest.mark.parametrize("can_copy", [True, False])
def test_the_next_turn_of_a_chat_reads_what_is_new(can_copy: bool) -> None:
    world = make_world(can_copy=can_copy)
    first = ended(world, SYSTEM)
    assert read(world, [*first.tokens, 5, 6, 7]) == 1 + 3, "the last token of a text was never fed"


def test_the_slot_of_another_key_is_emptied_when_it_changes_hands() -> None:
    for kept in (True, False):
        world = make_world(1)
        first = session_of(world, SYSTEM, owner="a")
        world.ask(first, until_end=kept)
        world.run(world.now + 5.0)
        assert read(world, SYSTEM, owner="b") == 201


def test_kept_texts_make_room_the_oldest_first() -> None:
    world = make_world(3)
    prompts = [[256, number, *range(50)] for number in range(4)]
    for prompt in prompts[:3]:
        ended(world, prompt)
    opened(world, prompts[3])
    assert read(world, prompts[1]) == 1
    assert read(world, prompts[0]) == 52, "it was the oldest"


def test_a_number_of_tokens_is_kept() -> None:
    world = make_world(8, most_kept=150)
    for number in range(3):
        ended(world, [256, number, *range(40)])  # 42 and 19
    assert world.scheduler.state.kept_tokens == 2 * 61
    assert read(world, [256, 0, *range(40)]) == 42
    ended(world, SYSTEM)
    assert read(world, SYSTEM) == 201, "longer than all that is kept"


def test_engines_with_a_step_reuse_multiples_of_it_and_read_as_much_as_they_say() -> None:
    """Then the passes over the rest have the widths and the places that they would have without reuse."""
    world = make_world(8, step=16, rest=20)
    ended(world, SYSTEM)
    assert read(world, SYSTEM) == 201 - 176
    assert read(world, [*SYSTEM[:191], 7]) == 192 - 160
    assert read(world, [*SYSTEM[:100], *[200] * 100]) == 200 - 96


class Overflowing(ScriptedBackend):
    """Counts the slots in `nan` as holding NaN."""

    def __init__(self, slots: int) -> None:
        super().__init__(SCRIPT, slots=slots, context_length=4096)
        self.nan: set[int] = set()

    def has_overflowed(self, slot: int) -> bool:
        return slot in self.nan

    def release(self, slot: int) -> None:
        self.nan.discard(slot)
        super().release(slot)


def test_a_text_with_nan_in_its_slot_is_not_kept() -> None:
    backend = Overflowing(2)
    world = World(backend)
    session = opened(world, SYSTEM)
    slot = world.slot(session)
    assert slot is not None
    backend.nan.add(slot)
    world.scheduler.forget(session)
    assert read(world, SYSTEM) == 201


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(10, 120), st.sampled_from(["", "a", "b"]), st.integers(1, 40)),
        min_size=1,
        max_size=12,
    ),
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from([(1, 1), (8, 30)]),
    st.sampled_from([None, 0, 100, 200]),
)
def test_texts_are_the_same_whatever_is_kept(
    asked: list[tuple[int, int, str, int]], can_copy: bool, slots: int, reuse: tuple[int, int], most: int | None
) -> None:
    """Texts that begin alike, one after the other or at once, on any engine; `World` checks the pool each time."""
    world = make_world(slots, can_copy=can_copy, step=reuse[0], rest=reuse[1], most_kept=most)
    for number, (kind, length, owner, tokens) in enumerate(asked):
        prompt = [256, *([kind] * 20), *range(length)]
        session = world.open(prompt, max_tokens=tokens, sampling=Sampling())
        session.scope = owner
        world.ask(session, until_end=True)
        if number % 3:
            world.run(world.now + 5.0)
            assert session.tokens[len(prompt) :] == plain(SCRIPT, prompt, tokens)
            world.scheduler.forget(session)
    world.run(world.now + 30.0)


PROMPT = [256, *range(20)]
TEXT = plain(SCRIPT, PROMPT, 40)


class Even(ScriptedBackend):
    """Records what its passes feed."""

    def __init__(self, even_width: int | None, slots: int) -> None:
        self.fed_pieces: list[tuple[int, int]] = []
        super().__init__(SCRIPT, slots=slots, max_batch_tokens=64)
        self.even_width = even_width

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        self.fed_pieces += [(entry.start, len(entry.tokens)) for entry in batch]
        return super()._forward(batch)


def pieces(backend: Even) -> list[int]:
    """The widths of the pieces fed since the last call; they must have no gap."""
    read, backend.fed_pieces = backend.fed_pieces, []
    ends = [start + width for start, width in read]
    assert [start for start, _ in read] == [0, *ends[:-1]]
    return [width for _, width in read]


@pytest.mark.parametrize(("even_width", "widths"), [(8, [21, 8, 8, 8, 6]), (64, [21, 30]), (None, [51])])
def test_committed_tokens_of_a_new_session_are_fed_in_pieces(even_width: int | None, widths: list[int]) -> None:
    backend = Even(even_width, slots=2)
    bench = Bench(backend=backend)
    session = bench.open(PROMPT)
    session.resume(TEXT[:30])
    assert bench.verify(session, len(PROMPT) + 30).tokens == TEXT[30:31]
    assert pieces(backend) == widths


@pytest.mark.parametrize(("even_width", "widths"), [(8, [21, 8, 8, 4]), (None, [41])])
def test_a_session_whose_slot_was_taken_is_fed_in_pieces(even_width: int | None, widths: list[int]) -> None:
    backend = Even(even_width, slots=1)
    bench = Bench(backend=backend)
    session = bench.open(PROMPT)
    bench.prefill(session)
    bench.verify(session, len(PROMPT) + 1, TEXT[1:19])
    bench.prefill(bench.open([256, 99]))
    assert bench.slot(session) is None
    backend.fed_pieces = []
    assert bench.verify(session, len(PROMPT) + 20).tokens == TEXT[20:21]
    assert pieces(backend) == widths
