"""Draft credit: how many draft tokens of a session a shared pass judges depends on how many were accepted."""

from typing import Any

import pytest

from backends.scripted import ScriptedBackend
from lab.simulator.costs.cost import LinearCost
from lab.simulator.paced.engine import TARGET_25
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.draft import Draft, DraftToken
from tests.verifier_server.engine.bench import plain
from tests.verifier_server.engine.virtual import SCRIPT, World, opened
from verifier_server.engine.arrived_drafts import Answer, Request
from verifier_server.engine.draft_credit import INITIAL, DraftCredit, price
from verifier_server.sessions import Session

PASS_TIMES = [0.025 + 0.0005 * drafts for drafts in range(17)]
CHEAP, EXPENSIVE = (TARGET_25, 4.0), (LinearCost(25.0, 8.0, 2.0), 8.0)  # the cost of passes, and seconds to measure


def make_world(**options: Any) -> World:
    """A world with a target for which a draft token costs the full price."""
    backend = ScriptedBackend(SCRIPT, slots=8, context_length=4096, max_batch_tokens=512)
    return World(backend, lambda plan: 0.0245 + 0.0005 * plan.tokens, pass_times=PASS_TIMES, **options)


def test_a_drafter_with_one_draft_token_in_four_accepted_is_never_limited() -> None:
    draft_credit = DraftCredit()
    for _ in range(200):
        assert (draft_credit.drafts(1.0) or 0) >= 8
        draft_credit.judged(8, 2, 1.0)


def test_credit_falls_to_one_token_in_eight_passes_and_recovers() -> None:
    draft_credit, judged = DraftCredit(), []
    for _ in range(80):
        drafts = min(64, draft_credit.drafts(1.0) or 0)
        judged.append(drafts)
        draft_credit.judged(drafts, 0, 1.0)
    assert judged[0] == INITIAL and sum(judged[1:]) == 9 and max(judged[1:]) == 1
    rounds = 0
    while (draft_credit.drafts(1.0) or 0) < 16:
        drafts = min(16, draft_credit.drafts(1.0) or 0)
        draft_credit.judged(drafts, drafts, 1.0)
        rounds += 1
    assert rounds <= 8 + 3


@pytest.mark.parametrize(
    ("share", "costs"), [(0.44, 1.0), (0.02, 1.0), (0.005, 0.25), (0.0, 0.0), (-0.1, 0.0), (None, 1.0)]
)
def test_price_is_the_share_by_which_a_draft_token_lengthens_the_pass(share: float | None, costs: float) -> None:
    pass_times = [] if share is None else [0.025 * (1.0 + share * tokens) for tokens in range(17)]
    assert price(pass_times) == pytest.approx(costs)
    assert (DraftCredit().drafts(price(pass_times)) is None) is (costs == 0.0)


def send_junk(world: World, session: Session, seen: list[Answer]) -> None:
    """Send 64 wrong draft tokens again and again."""

    def answered(answer: Answer | None = None) -> None:
        if answer is not None:
            seen.append(answer)
        truth = plain(SCRIPT, session.tokens, 1)[0]
        world.ask(session, None, [(truth + 1) % 256] * 64, answered)

    answered()


def test_unjudged_drafts_are_reported_and_the_text_is_exact() -> None:
    world, seen = make_world(), list[Answer]()
    junk, other = opened(world, [256, 1]), opened(world, [256, 2])

    def again(_answer: Answer | None = None) -> None:
        world.ask(other, None, [], again)

    again()
    send_junk(world, junk, seen)
    world.run(world.now + 2.0)
    assert all(answer.judged + answer.unjudged == 64 for answer in seen)
    assert seen[0].judged == INITIAL and seen[-1].judged <= 1
    assert all(len(answer.tokens) == 1 for answer in seen), "every pass still brings a token"
    assert junk.tokens == [256, 1, *plain(SCRIPT, [256, 1], len(junk.tokens) - 2)]


def test_other_sessions_do_not_change_a_text_that_depends_on_what_is_judged() -> None:
    judged: list[list[int]] = []
    for alone in (True, False):
        world, seen = make_world(), list[Answer]()
        session = opened(world, [256, 1], strategy=Strategy.THRESHOLD)
        session.rule = type(session.rule)(Strategy.THRESHOLD, session.spec.sampling, 0.999)
        if not alone:
            other = opened(world, [256, 2])

            def again(_answer: Answer | None = None, world: World = world, other: Session = other) -> None:
                world.ask(other, None, [], again)

            again()
        send_junk(world, session, seen)
        world.run(world.now + 3.0)
        judged.append([answer.judged for answer in seen[:30]])
    assert judged[0] == judged[1]


@pytest.mark.parametrize(("chances", "judged"), [([0.9, 0.2], [3, 0]), ([0.2], [3]), ([None, 0.2], [3, 0])])
def test_draft_tokens_that_do_not_pay_are_left_out_of_a_shared_pass(
    chances: list[float | None], judged: list[int]
) -> None:
    """A token costs half of what one brings. A session that is alone has decided for itself."""
    world = World(ScriptedBackend(SCRIPT), pass_times=[0.02 + 0.01 * tokens for tokens in range(1, 18)])
    prompts = [[256, number] for number in range(len(chances))]
    sessions, answers = [opened(world, prompt) for prompt in prompts], list[Answer]()
    for prompt, session, chance in zip(prompts, sessions, chances, strict=True):
        drafted = tuple(DraftToken(token, chance=chance) for token in plain(SCRIPT, prompt, 4)[1:])
        request = Request(session, Draft(3, drafted), lambda answer: answers.append(answer))  # type: ignore[arg-type]
        world.scheduler.submit(request, world.now)
    world.run(world.now + 1.0)
    assert [answer.judged for answer in answers] == judged
    assert [answer.tokens for answer in answers] == [
        plain(SCRIPT, prompt, 2 + most)[1:] for prompt, most in zip(prompts, judged, strict=True)
    ]
