"""What a session may have judged in passes that it shares follows what it has had accepted."""

import pytest

from backends.scripted import Script, ScriptedBackend
from simulation.capacity import Setting
from simulation.neighbour import rate
from simulation.paced import DRAFTER_8, TARGET_25, Cost
from speculation.acceptance.strategies import Strategy
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.engine.virtual import World, fed, opened
from verifier_server.engine.draft_credit import EARNED, FIRST, MOST, DraftCredit, price
from verifier_server.engine.requests import Answer
from verifier_server.sessions import Session

SCRIPT = Script(seed=3)
PASS_MS = [25.0 + 0.5 * drafts for drafts in range(17)]
SETTING = Setting(TARGET_25, DRAFTER_8, warm_up=1.0, seconds=4.0)
DEAR = Setting(Cost(25.0, 8.0, 2.0), DRAFTER_8, warm_up=1.0, seconds=8.0)


def world(**options: object) -> World:
    """Of a target to which each draft costs as much as credit does."""
    backend = ScriptedBackend(SCRIPT, rows=8, context_length=4096, max_batch_tokens=512)
    return World(backend, lambda plan: 0.0245 + 0.0005 * plan.tokens, pass_ms=PASS_MS, **options)


@pytest.mark.slow
@pytest.mark.parametrize("setting", [SETTING, DEAR], ids=["cheap", "dear"])
@pytest.mark.parametrize("beside", ["junk", "junk, 16", "junk, new"])
@pytest.mark.parametrize("form", ["target", "ours"])
def test_beside_junk_a_neighbour_keeps_what_it_has_beside_a_plain_client(
    form: str, beside: str, setting: Setting
) -> None:
    plain = "plain, new" if beside == "junk, new" else "plain"
    assert rate(form, beside, setting) >= 0.85 * rate(form, plain, setting)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["k=4", "ours"])
def test_an_honest_drafter_beside_another_loses_nothing(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = rate(form, "honest", SETTING)
    monkeypatch.setattr(DraftCredit, "drafts", lambda *_: None)
    assert limited == rate(form, "honest", SETTING)


def test_a_drafter_with_one_draft_in_four_accepted_is_never_limited() -> None:
    draft_credit = DraftCredit()
    for _ in range(200):
        assert (draft_credit.drafts(1.0) or 0) >= 8
        draft_credit.judged(8, 2, 1.0)


def test_random_drafts_come_down_to_one_in_eight_passes_and_good_ones_come_back() -> None:
    draft_credit, judged = DraftCredit(), []
    for _ in range(80):
        drafts = min(64, draft_credit.drafts(1.0) or 0)
        judged.append(drafts)
        draft_credit.judged(drafts, 0, 1.0)
    assert judged[0] == FIRST and sum(judged[1:]) == 9 and max(judged[1:]) == 1
    rounds = 0
    while (draft_credit.drafts(1.0) or 0) < 16:
        drafts = min(16, draft_credit.drafts(1.0) or 0)
        draft_credit.judged(drafts, drafts, 1.0)
        rounds += 1
    assert rounds <= 8 + 3


def test_saved_credit_is_bounded() -> None:
    draft_credit = DraftCredit()
    for _ in range(50):
        draft_credit.judged(16, 16, 1.0)
    assert draft_credit.drafts(1.0) == MOST


@pytest.mark.parametrize(
    ("share", "costs"), [(0.44, 1.0), (0.02, 1.0), (0.005, 0.25), (0.0, 0.0), (-0.1, 0.0), (None, 1.0)]
)
def test_a_draft_costs_as_much_as_it_lengthens_the_pass(share: float | None, costs: float) -> None:
    pass_ms = [] if share is None else [25.0 * (1.0 + share * tokens) for tokens in range(17)]
    assert price(pass_ms) == pytest.approx(costs)
    assert (DraftCredit().drafts(price(pass_ms)) is None) is (costs == 0.0)


def send_junk(at: World, session: Session, seen: list[Answer]) -> None:
    """64 wrong drafts at a time, for ever."""

    def answered(answer: Answer | None = None) -> None:
        if answer is not None:
            seen.append(answer)
        truth = plain(SCRIPT, session.tokens, 1)[0]
        at.ask(session, None, [(truth + 1) % 256] * 64, answered)

    answered()


def test_alone_a_drafter_has_all_its_drafts_judged() -> None:
    at, seen = world(), list[Answer]()
    send_junk(at, opened(at, [256, 1]), seen)
    at.run(at.now + 2.0)
    assert {answer.judged for answer in seen} == {64} and {answer.unjudged for answer in seen} == {0}


def test_what_is_not_judged_is_told_and_the_text_is_the_plain_one() -> None:
    at, seen = world(), list[Answer]()
    junk, other = opened(at, [256, 1]), opened(at, [256, 2])

    def on(_answer: Answer | None = None) -> None:
        at.ask(other, None, [], on)

    on()
    send_junk(at, junk, seen)
    at.run(at.now + 2.0)
    assert all(answer.judged + answer.unjudged == 64 for answer in seen)
    assert seen[0].judged == FIRST and seen[-1].judged <= 1
    assert all(len(answer.tokens) == 1 for answer in seen), "a token comes of every pass all the same"
    assert junk.tokens == [256, 1, *plain(SCRIPT, [256, 1], len(junk.tokens) - 2)]


def test_the_targets_own_token_may_equal_a_draft_that_was_not_judged() -> None:
    at, seen = world(), list[Answer]()
    good, other = opened(at, [256, 1]), opened(at, [256, 2])
    at.ask(other)
    truth = plain(SCRIPT, good.tokens, 30)
    at.ask(good, None, truth[:30], seen.append)
    at.run(at.now + 0.1)
    (answer,) = seen
    assert (answer.judged, answer.unjudged) == (FIRST, 30 - FIRST)
    assert answer.tokens == truth[: int(FIRST) + 1] and answer.accepted == FIRST + 1
    earned = at.scheduler._queue[good].draft_credit.drafts(1.0)
    assert earned == min(MOST, EARNED * FIRST)


def test_where_the_text_depends_on_what_is_judged_neighbours_change_nothing() -> None:
    judged: list[list[int]] = []
    for alone in (True, False):
        at, seen = world(), list[Answer]()
        session = opened(at, [256, 1], strategy=Strategy.THRESHOLD)
        session.rule = type(session.rule)(Strategy.THRESHOLD, session.sampling, 0.999)
        if not alone:
            other = opened(at, [256, 2])

            def on(_answer: Answer | None = None, at: World = at, other: Session = other) -> None:
                at.ask(other, None, [], on)

            on()
        send_junk(at, session, seen)
        at.run(at.now + 3.0)
        judged.append([answer.judged for answer in seen[:30]])
    assert judged[0] == judged[1]


def test_a_session_with_many_guesses_waiting_has_no_more_turns_than_one_with_one() -> None:
    """They take the room of a batch by turns, not by the arrival of each guess."""
    at = World(ScriptedBackend(SCRIPT, rows=8, context_length=4096, max_batch_tokens=8), prefill_chunk=8)
    many, one = opened(at, [256, 1]), opened(at, [256, 2])
    passes = {many.id: 0, one.id: 0}
    truth = {session.id: plain(SCRIPT, session.tokens, 400) for session in (many, one)}
    start = {session.id: len(session.tokens) for session in (many, one)}

    def ask(session: Session, at_once: int, _answer: Answer | None = None) -> None:
        done = len(session.tokens) - start[session.id]
        for _ in range(at_once):
            at.ask(session, None, truth[session.id][done : done + 5], lambda answer: ask(session, 1, answer))

    ask(many, 16)
    ask(one, 1)
    before = len(at.plans)
    at.run(at.now + 1.0)
    for _, plan in at.plans[before:]:
        for name in fed(plan):
            passes[name] += 1
    assert passes[one.id] >= 0.9 * passes[many.id]
