"""Which session gets a row, whose row it takes, and what it need not compute because another row holds it."""

from collections import Counter

import pytest

from backends.scripted import Script, ScriptedBackend
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.engine.virtual import World, fed, opened

SCRIPT = Script(seed=3)


def world(rows: int, **options: object) -> World:
    backend = ScriptedBackend(
        SCRIPT,
        rows=rows,
        context_length=4096,
        max_batch_tokens=options.pop("batch", 512),  # type: ignore[arg-type]
        can_copy=bool(options.pop("can_copy", True)),
        max_rollback=options.pop("max_rollback", None),  # type: ignore[arg-type]
    )
    return World(backend, **options)


def test_a_session_for_which_nothing_waits_gives_up_its_row_rather_than_one_that_waits() -> None:
    at = world(2)
    waits, idle = opened(at, [256, 1]), opened(at, [256, 2])  # the one that waits was used longer ago
    at.ask(at.open([256, 3]))
    at.ask(waits)
    before = len(at.plans)
    at.run(at.now + 0.01)
    assert fed(at.plans[before][1]) == {"session-1": 1, "session-3": 2}
    assert (waits.row, idle.row) == (0, None)


def test_sessions_that_all_wait_take_turns_of_many_answers() -> None:
    """Three texts are written over two rows: each change of a row costs a recomputation, so there are few."""
    at = world(2)
    sessions = [at.open([256, number], max_tokens=64) for number in range(3)]
    for session in sessions:
        at.ask(session, until_end=True)
    at.run(20.0)
    for session in sessions:
        assert session.tokens[2:] == plain(SCRIPT, session.tokens[:2], 64)
    moves = Counter(entry_of for _, plan in at.plans for entry_of in began(plan))
    assert sum(moves.values()) <= 3 + 3 * 64 // 16, "a turn is 16 answers"
    assert max(moves.values()) > 1, "and rows do change hands"


def began(plan: object) -> list[str]:
    """Sessions whose row a pass fills from its start."""
    pairs = zip(plan.parts, plan.batch, strict=True)  # type: ignore[attr-defined]
    return [part.sequence.session.id for part, entry in pairs if entry.start == 0]


def test_a_session_that_waits_for_a_row_gets_one_within_a_turn() -> None:
    at = world(1)
    at.ask(opened(at, [256, 1], max_tokens=1000), until_end=True)
    at.run(at.now + 0.1)
    before = len(at.plans)
    late = at.open([256, 2])
    at.ask(late)
    at.run(at.now + 1.0)
    first = next(number for number, (_, plan) in enumerate(at.plans[before:]) if late.id in fed(plan))
    assert first <= 16


def test_a_session_whose_turn_is_over_does_not_take_its_row_right_back() -> None:
    """Though its guess came first."""
    at = world(1)
    one, other = opened(at, [256, 1]), at.open([256, 2])
    for _ in range(15):
        at.ask(one)
        at.run(at.now + 0.1)
    at.ask(one)
    at.ask(other)
    before = len(at.plans)
    at.run(at.now + 0.1)
    assert [list(fed(plan)) for _, plan in at.plans[before:]] == [[other.id], [one.id]]


def test_no_more_than_one_row_changes_hands_in_a_pass_when_all_wait() -> None:
    at = world(4)
    for number in range(8):
        at.ask(at.open([256, number, 5], max_tokens=200), until_end=True)
    at.run(10.0)
    assert max(len(began(plan)) for _, plan in at.plans[1:]) == 1


def test_a_row_is_taken_only_for_what_the_pass_can_feed() -> None:
    at = world(3, prefill_chunk=64)
    idle = [opened(at, [256, number]) for number in range(3)]
    for number in range(2):
        at.ask(at.open([256, 7 + number] + [number] * 500))
    at.run(at.now + 0.001)
    assert [session.row is None for session in idle] == [True, False, False]


SYSTEM = [256, *range(100), *range(100)]  # 201 tokens that several prompts begin with


def test_a_prompt_that_starts_like_a_text_that_is_held_computes_only_the_rest() -> None:
    at = world(3)
    opened(at, [*SYSTEM, 1, 1, 1])
    before = at.backend.fed
    session = opened(at, [*SYSTEM, 2, 2])
    assert at.backend.fed - before == 2
    same = opened(at, [*SYSTEM, 2, 2])
    assert at.backend.fed - before == 3, "of an equal prompt, the last token is fed: its logits are wanted"
    for each in (session, same):
        text = plain(SCRIPT, each.tokens[: each.prompt_len], 5)
        at.ask(each, None, text[1:5])
        at.run(at.now + 0.1)
        assert each.tokens[each.prompt_len :][:5] == text


def test_the_longest_beginning_is_copied() -> None:
    at = world(4)
    for prompt in ([*SYSTEM[:50], 1], [*SYSTEM[:150], 1], [*SYSTEM[:100], 1]):
        opened(at, prompt)
    before = at.backend.fed
    opened(at, SYSTEM)
    assert at.backend.fed - before == 201 - 150


def test_text_that_was_generated_is_shared_too() -> None:
    """The next turn of a chat begins with all of the one before."""
    at = world(2)
    first = opened(at, SYSTEM, max_tokens=31)
    at.ask(first, None, plain(SCRIPT, SYSTEM, 31)[1:])
    at.run(at.now + 0.1)
    before = at.backend.fed
    opened(at, [*first.tokens, 5, 6])
    assert at.backend.fed - before == 3, "the last token of a text was never fed"


@pytest.mark.parametrize(("common", "shared"), [(15, 0), (16, 16)])
def test_a_short_beginning_is_not_worth_it(common: int, shared: int) -> None:
    at = world(2)
    opened(at, SYSTEM)
    before = at.backend.fed
    opened(at, [*SYSTEM[:common], *[200] * 20])
    assert at.backend.fed - before == common + 20 - shared


def test_engines_that_cannot_copy_compute() -> None:
    at = world(2, can_copy=False)
    opened(at, SYSTEM)
    before = at.backend.fed
    opened(at, SYSTEM)
    assert at.backend.fed - before == 201


def test_engines_that_cannot_take_back_share_only_what_is_held_to_its_end() -> None:
    at = world(4, max_rollback=2)
    opened(at, SYSTEM)  # holds just the prompt
    before = at.backend.fed
    opened(at, [*SYSTEM, 9])
    assert at.backend.fed - before == 1
    opened(at, [*SYSTEM[:180], 9])
    assert at.backend.fed - before == 1 + 181, "a copy would have to end 21 tokens before what the row holds"


def test_prompts_with_a_common_beginning_that_come_together_compute_it_once() -> None:
    """They are read by turns, and each takes over what the other has read meanwhile."""
    at = world(4, prefill_chunk=32)
    prompts = [[*SYSTEM, *SYSTEM, number, number] for number in range(4)]
    sessions = [at.open(prompt) for prompt in prompts]
    for session in sessions:
        at.ask(session)
    at.run(5.0)
    assert at.backend.fed < len(prompts[0]) + 4 * 32
    assert [session.tokens[session.prompt_len :] for session in sessions] == [plain(SCRIPT, p, 1) for p in prompts]


def test_an_evicted_text_takes_over_what_others_hold() -> None:
    at = world(2)
    gone = opened(at, [*SYSTEM, 1])
    opened(at, [*SYSTEM, 2])
    opened(at, [5, 6])
    assert gone.row is None
    before = at.backend.fed
    at.ask(gone)
    at.run(at.now + 0.1)
    assert at.backend.fed - before == 2
    assert gone.tokens[202:] == plain(SCRIPT, [*SYSTEM, 1], 2)


def test_a_row_that_changes_hands_keeps_what_both_texts_begin_with() -> None:
    """Even where the engine cannot copy: the next turn of a chat, say, on the only row."""
    at = world(1, can_copy=False)
    opened(at, [*SYSTEM, 1])
    before = at.backend.fed
    session = opened(at, [*SYSTEM, 2])
    assert at.backend.fed - before == 1
    assert session.tokens[202:] == plain(SCRIPT, [*SYSTEM, 2], 1)
    opened(at, [*SYSTEM[:15], 2])
    assert at.backend.fed - before == 1 + 16, "what little they share is not worth it"


def test_a_session_forgotten_during_its_pass_leaves_its_row_when_the_pass_is_over() -> None:
    at = world(2)
    gone, stays = at.open([256, 1]), at.open([256, 2])
    errors: list[str] = []
    for session in (gone, stays):
        at.ask(session, failed=lambda error: errors.append(error.code))
    at.after(0.01, lambda: at.scheduler.forget(gone, at.now))
    at.run(0.02)
    assert (errors, gone.row) == (["unknown_session"], 0)
    at.run(0.1)
    assert (gone.row, stays.tokens[2:]) == (None, plain(SCRIPT, [256, 2], 1))
    assert [at.backend.length(row) for row in range(2)] == [0, 2]
