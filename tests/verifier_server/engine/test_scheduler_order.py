"""The order within a pass: verify requests, then chunks of prompts; sessions share it fairly."""

from functools import partial
from typing import Any

import pytest

from backends.scripted import Script, ScriptedBackend
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.engine.virtual import World, fed, opened
from verifier_server.engine.requests import Answer
from verifier_server.sessions import Session

SCRIPT = Script(seed=3)


def make_world(slots: int = 8, batch: int = 512, **options: Any) -> World:
    return World(ScriptedBackend(SCRIPT, slots=slots, context_length=4096, max_batch_tokens=batch), **options)


def keep_asking(world: World, session: Session, waits: list[float]) -> None:
    """Keep requesting one token, each as soon as the last one came; appends how long each took."""
    sent = world.now

    def answered(answer: Answer) -> None:
        nonlocal sent
        waits.append(world.now - sent)
        sent = world.now
        world.ask(session, answer.total_tokens, [], answered)

    world.ask(session, None, [], answered)


def test_a_long_prompt_delays_others_by_no_more_than_a_chunk() -> None:
    world = make_world(prefill_chunk=100)
    busy = opened(world, [256, 1])
    waits: list[float] = []
    keep_asking(world, busy, waits)
    late = world.open([256, 2] + [5] * 1000)
    first: list[float] = []
    world.after(0.01, lambda: world.ask(late, None, [], lambda answer: first.append(world.now)))
    world.run(2.0)
    chunks = [fed(plan)[late.id] for _, plan in world.plans if late.id in fed(plan)]
    assert chunks == [100] * 10 + [2]
    assert all(busy.id in fed(plan) for _, plan in world.plans[1:])
    assert max(waits) == pytest.approx(0.025 + 101 * 0.0002)
    assert first
    assert late.tokens[1002:] == plain(SCRIPT, late.tokens[:1002], 1)


def test_a_prompt_alone_fills_the_whole_batch() -> None:
    world = make_world(prefill_chunk=100)
    opened(world, [256, 2] + [5] * 1100)
    assert [len(plan.batch[0].tokens) for _, plan in world.plans] == [512, 512, 78]


@pytest.mark.parametrize("ended", [True, False])
def test_finished_and_silent_sessions_do_not_cause_chunking(ended: bool) -> None:
    world = make_world(prefill_chunk=100)
    opened(world, [256, 1], max_tokens=1 if ended else 100)
    before = len(world.plans)
    world.run(world.now + (0.0 if ended else 1.9))
    assert (fed_to_a_new_prompt(world, before) == 300) is ended
    world.run(world.now + 2.1)
    assert fed_to_a_new_prompt(world, len(world.plans)) == 300


def fed_to_a_new_prompt(world: World, before: int) -> int:
    """Tokens in the first pass of a new prompt of 300 tokens."""
    world.ask(world.open([256, before] + [before] * 298, max_tokens=1))
    world.run(world.now + 0.0)
    width = world.plans[before][1].tokens
    world.run(world.now + 0.5)
    return width


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    world = make_world(prefill_chunk=100)
    ended: list[str] = []

    def ask(session: Session, name: str) -> None:
        world.ask(session, None, [], lambda answer: ended.append(name))

    for name, length in (("long", 2000), ("short", 350)):
        session = world.open([256, length % 200] + [length % 100] * length)
        world.after(0.0 if name == "long" else 0.01, partial(ask, session, name))
    world.run(3.0)
    assert ended == ["short", "long"]
    taken = [list(fed(plan)) for _, plan in world.plans]
    assert taken[1:5] == [["session-1"], ["session-2"], ["session-1"], ["session-2"]], (
        "by turns; at first the long one was alone"
    )


def test_drafts_take_the_room_of_a_batch_by_arrival() -> None:
    world = make_world(batch=32, prefill_chunk=32)
    sessions = [opened(world, [256, number]) for number in range(4)]
    world.run(5.0)
    before = len(world.plans)
    answered: list[int] = []

    def note(number: int, answer: Answer) -> None:
        answered.append(number)

    for number, drafts in enumerate((20, 20, 5, 3)):
        world.ask(sessions[number], None, [0] * drafts, partial(note, number))
    world.run(6.0)
    first, second = (fed(plan) for _, plan in world.plans[before:])
    assert first == {"session-1": 21, "session-3": 6, "session-4": 4}, (
        "a draft that does not fit leaves the room to others"
    )
    assert second == {"session-2": 21}
    assert answered == [0, 2, 3, 1]


def during_a_chunk() -> tuple[World, Session]:
    """A world in whose last pass a long prompt is read, and another session, which waits for nothing."""
    world = make_world(batch=64, prefill_chunk=32)
    one = opened(world, [256, 1])
    world.ask(world.open([256, 2] + [7] * 500))
    world.run(world.now + 0.01)
    return world, one


def test_a_request_that_arrived_during_a_chunk_gets_a_pass_without_one() -> None:
    world, one = during_a_chunk()
    before = len(world.plans)
    world.ask(one, None, [0] * 5)
    world.run(world.now + 0.1)
    assert [fed(plan) for _, plan in world.plans[before : before + 2]] == [{"session-1": 6}, {"session-2": 32}]


def test_a_prompt_without_room_goes_first_after_some_passes() -> None:
    """Drafts that fill every batch must not starve new sessions."""
    world = make_world(batch=16, prefill_chunk=8)
    for number in range(3):
        session = opened(world, [256, number])

        def again(_answer: Answer | None = None, session: Session = session) -> None:
            world.ask(session, None, plain(SCRIPT, session.tokens, 15), again)

        again()
    late = world.open([256, 9] + [9] * 20)
    world.ask(late)
    before = len(world.plans)
    world.run(world.now + 2.0)
    fed_late = [number for number, (_, plan) in enumerate(world.plans[before:]) if late.id in fed(plan)]
    assert fed_late[:3] == [8, 17, 26]
    assert len(late.tokens) > late.prompt_len
