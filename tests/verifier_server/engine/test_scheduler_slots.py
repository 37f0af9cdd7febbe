"""Which session gets a slot, whose slot it takes, and which prefix it copies from another slot."""

from collections import Counter
from typing import Any

from backends.scripted import Script, ScriptedBackend
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.engine.virtual import World, fed, opened

SCRIPT = Script(seed=3)


def make_world(slots: int, **options: Any) -> World:
    backend = ScriptedBackend(
        SCRIPT,
        slots=slots,
        context_length=4096,
        max_batch_tokens=options.pop("batch", 512),
        can_copy=bool(options.pop("can_copy", True)),
        max_rollback=options.pop("max_rollback", None),
    )
    return World(backend, **options)


def test_waiting_sessions_take_turns_of_16_answers() -> None:
    """Three texts share two slots: each change of a slot costs a recomputation, so there are few changes."""
    world = make_world(2)
    sessions = [world.open([256, number], max_tokens=64) for number in range(3)]
    for session in sessions:
        world.ask(session, until_end=True)
    world.run(20.0)
    for session in sessions:
        assert session.tokens[2:] == plain(SCRIPT, session.tokens[:2], 64)
    moves = Counter(session_id for _, plan in world.plans for session_id in began(plan))
    assert sum(moves.values()) <= 3 + 3 * 64 // 16, "a turn is 16 answers"
    assert max(moves.values()) > 1, "slots do change hands"


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


def test_a_slot_is_not_kept_for_a_client_that_does_not_come_back() -> None:
    world = make_world(2)
    stays, leaves = opened(world, [256, 1]), opened(world, [256, 2])
    for session in (stays, leaves):
        for _ in range(3):
            world.ask(session)
            world.run(world.now + 0.03)
    late = world.open([256, 3])
    world.ask(late)
    while len(late.tokens) < 3:
        world.ask(stays)
        world.run(world.now + 0.03)
    assert world.slot(leaves) is None and world.slot(stays) is not None
    assert world.now < 0.5


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
