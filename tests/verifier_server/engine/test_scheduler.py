"""The order within a pass, and who has the slots."""

from functools import partial
from typing import Any

import pytest

from tests.verifier_server.engine.bench import plain
from tests.verifier_server.engine.virtual import SCRIPT, World, fed, make_world, opened
from verifier_server.engine.arrived_drafts import Answer
from verifier_server.sessions import Session


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


def test_a_session_keeps_its_slot_between_its_requests() -> None:
    """Else three clients that draft for a while would have two slots read a text again in most passes."""
    world = make_world(2)
    sessions = [world.open([256, number], max_tokens=64) for number in range(3)]

    def ask(session: Any) -> None:
        if session.finish_reason is None:
            world.ask(session, then=lambda answer: world.after(0.01, lambda: ask(session)))

    for session in sessions:
        ask(session)
    world.run(40.0)
    assert all(len(session.tokens) == 66 for session in sessions)
    moves = sum(len(began(plan)) for _, plan in world.plans)
    assert moves <= 3 + 2 * 3 * 64 // 16


def began(plan: object) -> list[str]:
    """Sessions whose slot a pass fills from position 0."""
    pairs = zip(plan.parts, plan.batch, strict=True)  # type: ignore[attr-defined]
    return [part.sequence.session.id for part, entry in pairs if entry.start == 0]


def test_a_session_that_waits_for_a_slot_gets_one_within_a_turn() -> None:
    world = make_world(1)
    world.ask(opened(world, [256, 1], max_tokens=1000), until_end=True)
    world.run(world.now + 0.1)
    before = len(world.plans)
    late = world.open([256, 2])
    world.ask(late)
    world.run(world.now + 1.0)
    first = next(number for number, (_, plan) in enumerate(world.plans[before:]) if late.id in fed(plan))
    assert first <= 16


SYSTEM = [256, *range(100), *range(100)]  # 201 tokens, a prefix of several prompts


def test_a_prompt_that_shares_a_prefix_computes_only_the_rest() -> None:
    world = make_world(3)
    opened(world, [*SYSTEM, 1, 1, 1])
    before = world.backend.fed
    session = opened(world, [*SYSTEM, 2, 2])
    assert world.backend.fed - before == 2
    same = opened(world, [*SYSTEM, 2, 2])
    assert world.backend.fed - before == 3, "of an equal prompt the last token is fed, for its logits"
    for each in (session, same):
        text = plain(SCRIPT, each.tokens[: each.prompt_len], 5)
        world.ask(each, None, text[1:5])
        world.run(world.now + 0.1)
        assert each.tokens[each.prompt_len :][:5] == text


def test_engines_that_cannot_copy_compute_the_prefix() -> None:
    world = make_world(2, can_copy=False)
    opened(world, SYSTEM)
    before = world.backend.fed
    opened(world, SYSTEM)
    assert world.backend.fed - before == 201


def test_a_prefix_shared_by_simultaneous_prompts_is_computed_once() -> None:
    """They are prefilled by turns, and each copies what another has computed meanwhile."""
    world = make_world(4, prefill_chunk=32)
    prompts = [[*SYSTEM, *SYSTEM, number, number] for number in range(4)]
    sessions = [world.open(prompt) for prompt in prompts]
    for session in sessions:
        world.ask(session)
    world.run(5.0)
    assert world.backend.fed < len(prompts[0]) + 4 * 32
    assert [session.tokens[session.prompt_len :] for session in sessions] == [plain(SCRIPT, p, 1) for p in prompts]


def test_a_slot_that_changes_hands_keeps_the_shared_prefix() -> None:
    """Even if the engine cannot copy: for example the next turn of a chat in the only slot."""
    world = make_world(1, can_copy=False)
    opened(world, [*SYSTEM, 1])
    before = world.backend.fed
    session = opened(world, [*SYSTEM, 2])
    assert world.backend.fed - before == 1
    assert session.tokens[202:] == plain(SCRIPT, [*SYSTEM, 2], 1)
    opened(world, [*SYSTEM[:15], 2])
    assert world.backend.fed - before == 1 + 16, "too short a prefix to keep"


def test_a_session_forgotten_during_its_pass_frees_its_slot_afterwards() -> None:
    world = make_world(2)
    gone, stays = world.open([256, 1]), world.open([256, 2])
    errors: list[str] = []
    for session in (gone, stays):
        world.ask(session, failed=lambda error: errors.append(error.code))
    world.after(0.01, lambda: world.scheduler.forget(gone))
    world.run(0.02)
    assert (errors, world.slot(gone)) == (["unknown_session"], 0)
    world.run(0.1)
    assert (world.slot(gone), stays.tokens[2:]) == (None, plain(SCRIPT, [256, 2], 1))
    assert [world.backend.length(slot) for slot in range(2)] == [0, 2]
