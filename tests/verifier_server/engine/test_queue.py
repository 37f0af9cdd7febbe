"""Guesses that wait: absorbed where they are contained in one another, bounded in number, dropped when unwanted."""

import pytest

from backends.base import Entry
from backends.scripted import Script, ScriptedBackend
from speculation.errors import Overloaded, SpecPairError, UnknownSession
from tests.verifier_server.engine.bench import Asked, Bench, plain
from tests.verifier_server.engine.virtual import World
from verifier_server.engine.batching_window import LONGEST
from verifier_server.engine.queue import PER_SESSION
from verifier_server.engine.requests import Answer
from verifier_server.engine.scheduler import Inconsistent
from verifier_server.sessions import Session

SCRIPT = Script(seed=8)
PROMPT = [256, 1, 2, 3]
TEXT = plain(SCRIPT, PROMPT, 60)


def wrong(at: int) -> int:
    return (TEXT[at] + 1) % 256


@pytest.fixture
def bench() -> Bench:
    return Bench(SCRIPT)


@pytest.fixture
def session(bench: Bench) -> Session:
    session = bench.open(PROMPT)
    bench.prefill(session)
    return session


def ask_in_order(bench: Bench, session: Session, *guesses: list[int]) -> tuple[list[Asked], list[int]]:
    """Guesses from the first token on that wait together, and the order in which they come to be answered."""
    order: list[int] = []
    asked = [bench.ask(session, 5, drafts) for drafts in guesses]
    for number, each in enumerate(asked):

        def done(result: Answer | SpecPairError, each: Asked = each, number: int = number) -> None:
            order.append(number)
            each.results.append(result)

        each.request.done = done
    return asked, order


def test_a_guess_is_answered_by_the_pass_of_a_longer_one(bench: Bench, session: Session) -> None:
    passes = bench.backend.passes
    asked, order = ask_in_order(bench, session, TEXT[1:3], TEXT[1:5], TEXT[1:4])
    bench.run(*asked)
    assert bench.backend.passes == passes + 1
    assert order == [0, 1, 2]
    assert [each.answer.tokens for each in asked] == [TEXT[1:6]] * 3
    assert [each.answer.accepted for each in asked] == [2, 4, 3]
    assert [each.answer.judged for each in asked] == [0, 4, 0], "each position is judged once"
    assert [each.answer.forward_ms > 0 for each in asked] == [False, True, False], "and each pass is told of once"
    assert asked[0].answer.queue_ms >= asked[1].answer.queue_ms + asked[1].answer.forward_ms, "it waited as long"


def test_a_longer_guess_that_begins_otherwise_absorbs_nothing(bench: Bench, session: Session) -> None:
    asked, order = ask_in_order(bench, session, [TEXT[1], wrong(2)], [*TEXT[1:5]])
    bench.run(*asked)
    assert order == [0, 1]
    assert [each.answer.judged for each in asked] == [2, 2]
    assert [each.answer.tokens for each in asked] == [TEXT[1:3], TEXT[1:6]]


def test_a_guess_in_between_that_begins_otherwise_keeps_its_place(bench: Bench, session: Session) -> None:
    passes = bench.backend.passes
    asked, order = ask_in_order(bench, session, [], [wrong(1)], TEXT[1:4])
    bench.run(*asked)
    assert bench.backend.passes == passes + 1
    assert order == [0, 1, 2]
    assert [each.answer.judged for each in asked] == [0, 0, 3]


def test_absorbed_guesses_whose_drafts_fall_are_answered_too(bench: Bench, session: Session) -> None:
    passes = bench.backend.passes
    asked, _ = ask_in_order(bench, session, [TEXT[1], wrong(2)], [TEXT[1], wrong(2), 7, 7])
    bench.run(*asked)
    assert bench.backend.passes == passes + 1
    assert [each.answer.tokens for each in asked] == [TEXT[1:3]] * 2
    assert [each.answer.accepted for each in asked] == [1, 1]


def test_what_the_record_answers_does_not_wait_for_what_came_before(bench: Bench, session: Session) -> None:
    bench.verify(session, 5, TEXT[1:3])
    asked, order = ask_in_order(bench, session, TEXT[1:8], [wrong(1)])
    bench.run(*asked)
    assert order == [1, 0]
    assert asked[1].answer.tokens == TEXT[1:4]


def test_a_guess_too_long_fails_alone_and_only_when_its_turn_comes(bench: Bench, session: Session) -> None:
    """What is too long now may not be so once the guess before it has been judged."""
    first, late, hopeless = TEXT[1:30], TEXT[1:50], [*TEXT[1:30], *[0] * 40]
    asked, order = ask_in_order(bench, session, first, late, hopeless)
    bench.run(*asked)
    assert [each.answer.judged for each in asked] == [29, 19, 0]
    assert order == [0, 2, 1], "the record contradicts the last one by then"
    too_long = bench.ask(session, 5, [*session.tokens[5:], *[0] * 33])
    fine = bench.ask(session, 5, session.tokens[5:])
    bench.run(too_long, fine)
    with pytest.raises(SpecPairError, match="33 new drafts"):
        _ = too_long.answer
    assert fine.answer.total_tokens == len(session.tokens)


def test_too_many_guesses_are_refused_with_a_time_to_come_back(bench: Bench) -> None:
    bench = Bench(SCRIPT, max_queue=3, pass_ms=[2500.0] * 17)
    sessions = [bench.open([*PROMPT, number]) for number in range(5)]
    asked = [bench.ask(session, 5) for session in sessions]
    bench.run(*asked)
    assert [each.answer.tokens for each in asked[:3]] == [plain(SCRIPT, s.tokens[:5], 1) for s in sessions[:3]]
    for each in asked[3:]:
        with pytest.raises(Overloaded, match="3 guesses wait already") as caught:
            _ = each.answer
        assert caught.value.details == {"retry_after": 3}, "a pass of 2.5 seconds"
    again = bench.ask(sessions[4], 5)
    bench.run(again)
    assert again.answer.tokens


def test_a_client_at_its_share_is_told_of_its_own_guesses() -> None:
    at = World(ScriptedBackend(SCRIPT), max_queue=4, pass_ms=[2500.0] * 17)
    mine = [at.open([*PROMPT, number], client="mine") for number in range(4)]
    for session in mine[:3]:
        at.ask(session)
    with pytest.raises(Overloaded, match=r"^3 guesses of yours wait, as many as one client may have waiting") as caught:
        at.ask(mine[3])
    assert caught.value.details == {"retry_after": 3}, "a pass of 2.5 seconds"
    at.ask(at.open(PROMPT, client="another"))
    with pytest.raises(Overloaded, match=r"^4 guesses wait already"):
        at.ask(at.open([*PROMPT, 9], client="a third"))


def test_a_session_at_its_bound_is_told_of_its_own_guesses() -> None:
    at = World(ScriptedBackend(SCRIPT))
    session = at.open(PROMPT)
    for _ in range(PER_SESSION):
        at.ask(session)
    with pytest.raises(Overloaded, match=f"^{PER_SESSION} guesses of session {session.id} wait already"):
        at.ask(session)


def test_a_text_that_was_let_in_is_not_turned_away_half_way(bench: Bench) -> None:
    bench = Bench(SCRIPT, max_queue=1)
    first, text = bench.open([*PROMPT, 0]), bench.open(PROMPT)
    asked = [bench.ask(first, 5), bench.ask(text, 4), bench.ask(text, 4, resumes=True)]
    bench.run(*asked)
    assert [isinstance(each.results[-1], Overloaded) for each in asked] == [False, True, False]
    assert asked[2].answer.tokens == TEXT[:1]


def test_one_session_cannot_fill_the_queue(bench: Bench, session: Session) -> None:
    other = bench.open([256, 9])
    asked = [bench.ask(session, 5, [wrong(1)]) for _ in range(PER_SESSION + 1)]
    fine = bench.ask(other, 2)
    bench.run(*asked, fine)
    refused = [each for each in asked if isinstance(each.results[-1], Overloaded)]
    assert refused == asked[PER_SESSION:]
    assert fine.answer.tokens


def test_guesses_that_nobody_waits_for_take_no_room() -> None:
    at = World(ScriptedBackend(SCRIPT), max_queue=2)
    gone = [at.ask(at.open([256, number])) for number in range(2)]
    for request in gone:
        request.cancelled = True
    got: list[Answer] = []
    at.ask(at.open([256, 7]), None, [], got.append)
    at.run(1.0)
    assert len(got) == 1
    assert len(at.plans) == 1


def test_a_cancelled_guess_is_dropped_and_its_session_stays(bench: Bench, session: Session) -> None:
    passes = bench.backend.passes
    asked = bench.ask(session, 5, TEXT[1:3])
    asked.request.cancelled = True
    bench.engine.step()
    assert (bench.backend.passes, asked.results) == (passes, [])
    assert bench.verify(session, 5, TEXT[1:3]).tokens == TEXT[1:4], "a retry finds it as it was"


def test_a_guess_for_a_session_that_was_forgotten_is_refused(bench: Bench, session: Session) -> None:
    bench.engine.forget(session)
    asked = bench.ask(session, 5)
    bench.run(asked)
    with pytest.raises(UnknownSession, match="session-1 was deleted"):
        _ = asked.answer


def test_a_session_that_has_ended_is_waited_for_by_nobody() -> None:
    """The pass of another would be held open for it otherwise."""
    at = World(ScriptedBackend(SCRIPT, rows=2))
    ends, other = at.open([256, 1], max_tokens=10), at.open([256, 2])

    def again(answer: Answer) -> None:
        if answer.finish_reason is None:
            at.after(0.001, lambda: at.ask(ends, None, [], again))

    at.ask(ends, None, [], again)
    while ends.finish_reason is None:
        at.run(at.now + 0.0001)
    asked_at = at.now
    at.ask(other)
    at.run(asked_at + LONGEST * 0.025)
    assert at.plans[-1][0] == asked_at


def test_books_that_do_not_add_up_are_seen(bench: Bench, session: Session) -> None:
    other = bench.open([256, 9])
    bench.prefill(other)
    bench.engine.check_integrity()

    def broken(words: str) -> None:
        with pytest.raises(Inconsistent, match=words):
            bench.engine.check_integrity()

    row, session.row = session.row, other.row
    broken("row 0 belongs to session session-1, which has row 1")
    session.row = None
    broken("row 0 belongs to session session-1, which has row None")
    session.row = row
    session.held += 1
    broken("session session-1 counts 5 of its 5 tokens held, its row 0 holds 4")
    session.held -= 1
    bench.backend.extend([Entry(0, 0, [1], 1)])
    broken("counts 4 of its 5 tokens held, its row 0 holds 1")
    bench.backend.release(0)
    session.held = 0
    bench.engine.check_integrity()
    bench.engine.forget(other)
    bench.engine.step()
    bench.backend.extend([Entry(1, 0, [1], 1)])
    broken("row 1 is free and holds 1 tokens")
    bench.backend.release(1)
    session.gone = True
    broken("session session-1 is gone and still known")
