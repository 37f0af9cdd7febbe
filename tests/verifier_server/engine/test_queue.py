"""The queue: requests contained in longer ones are answered with them, their number is bounded, cancelled ones go."""

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.protocol.errors import Overloaded, SpecPairError
from tests.verifier_server.engine.bench import Asked, Bench, plain
from tests.verifier_server.engine.virtual import World
from verifier_server.engine.arrived_drafts import Answer
from verifier_server.engine.queue import PER_SESSION
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


def ask_in_order(bench: Bench, session: Session, *drafts_sent: list[int]) -> tuple[list[Asked], list[int]]:
    """Requests from the first token on that wait together, and the order in which they are answered."""
    order: list[int] = []
    asked = [bench.ask(session, 5, drafts) for drafts in drafts_sent]
    for number, each in enumerate(asked):

        def done(result: Answer | SpecPairError, each: Asked = each, number: int = number) -> None:
            order.append(number)
            each.results.append(result)

        each.request.done = done
    return asked, order


def test_a_draft_is_answered_by_the_pass_of_a_longer_one(bench: Bench, session: Session) -> None:
    passes = bench.backend.passes
    asked, order = ask_in_order(bench, session, TEXT[1:3], TEXT[1:5], TEXT[1:4])
    bench.run(*asked)
    assert bench.backend.passes == passes + 1
    assert order == [0, 1, 2]
    assert [each.answer.tokens for each in asked] == [TEXT[1:6]] * 3
    assert [each.answer.accepted for each in asked] == [2, 4, 3]
    assert [each.answer.judged for each in asked] == [0, 4, 0], "each position is judged once"
    assert [each.answer.forward > 0 for each in asked] == [False, True, False], "each pass is reported once"
    assert asked[0].answer.queue >= asked[1].answer.queue + asked[1].answer.forward, "it waited for the whole pass"


def test_answers_from_committed_tokens_do_not_wait_for_earlier_requests(bench: Bench, session: Session) -> None:
    bench.verify(session, 5, TEXT[1:3])
    asked, order = ask_in_order(bench, session, TEXT[1:8], [wrong(1)])
    bench.run(*asked)
    assert order == [1, 0]
    assert asked[1].answer.tokens == TEXT[1:4]


def test_a_draft_that_is_too_long_fails_alone_and_only_when_it_is_first(bench: Bench, session: Session) -> None:
    """A draft that is too long now may fit once the request before it was judged."""
    first, late, hopeless = TEXT[1:30], TEXT[1:50], [*TEXT[1:30], *[0] * 40]
    asked, order = ask_in_order(bench, session, first, late, hopeless)
    bench.run(*asked)
    assert [each.answer.judged for each in asked] == [29, 19, 0]
    assert order == [0, 2, 1], "by then the committed tokens contradict the last one"
    too_long = bench.ask(session, 5, [*session.tokens[5:], *[0] * 33])
    fine = bench.ask(session, 5, session.tokens[5:])
    bench.run(too_long, fine)
    with pytest.raises(SpecPairError, match="33 new draft tokens"):
        _ = too_long.answer
    assert fine.answer.total_tokens == len(session.tokens)


def test_too_many_requests_are_refused_with_retry_after(bench: Bench) -> None:
    bench = Bench(SCRIPT, max_queue=3, pass_times=[2.5] * 17)
    sessions = [bench.open([*PROMPT, number]) for number in range(5)]
    asked = [bench.ask(session, 5) for session in sessions]
    bench.run(*asked)
    assert [each.answer.tokens for each in asked[:3]] == [plain(SCRIPT, s.tokens[:5], 1) for s in sessions[:3]]
    for each in asked[3:]:
        with pytest.raises(Overloaded, match="3 requests are already waiting") as caught:
            _ = each.answer
        assert caught.value.details == {"retry_after": 3}, "a pass of 2.5 seconds"
    again = bench.ask(sessions[4], 5)
    bench.run(again)
    assert again.answer.tokens


def test_a_client_at_its_share_is_told_how_many_of_its_requests_wait() -> None:
    world = World(ScriptedBackend(SCRIPT), max_queue=4, pass_times=[2.5] * 17)
    mine = [world.open([*PROMPT, number], client="mine") for number in range(4)]
    for session in mine[:3]:
        world.ask(session)
    with pytest.raises(Overloaded, match=r"^3 of your requests are already waiting, the most for one client") as caught:
        world.ask(mine[3])
    assert caught.value.details == {"retry_after": 3}, "a pass of 2.5 seconds"
    world.ask(world.open(PROMPT, client="another"))
    with pytest.raises(Overloaded, match=r"^4 requests are already waiting"):
        world.ask(world.open([*PROMPT, 9], client="a third"))


def test_a_session_at_its_bound_is_told_how_many_of_its_requests_wait() -> None:
    world = World(ScriptedBackend(SCRIPT))
    session = world.open(PROMPT)
    for _ in range(PER_SESSION):
        world.ask(session)
    with pytest.raises(Overloaded, match=f"^{PER_SESSION} requests of session {session.id} are already waiting"):
        world.ask(session)


def test_later_requests_of_an_admitted_text_are_not_refused(bench: Bench) -> None:
    bench = Bench(SCRIPT, max_queue=1)
    first, text = bench.open([*PROMPT, 0]), bench.open(PROMPT)
    asked = [bench.ask(first, 5), bench.ask(text, 4), bench.ask(text, 4, admitted=True)]
    bench.run(*asked)
    assert [isinstance(each.results[-1], Overloaded) for each in asked] == [False, True, False]
    assert asked[2].answer.tokens == TEXT[:1]


def test_cancelled_requests_take_no_room() -> None:
    world = World(ScriptedBackend(SCRIPT), max_queue=2)
    gone = [world.ask(world.open([256, number])) for number in range(2)]
    for request in gone:
        request.cancelled = True
    got: list[Answer] = []
    world.ask(world.open([256, 7]), None, [], got.append)
    world.run(1.0)
    assert len(got) == 1
    assert len(world.plans) == 1
