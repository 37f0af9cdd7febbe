"""The target's own head predicts tokens for self-continuation steps: how many, where it stops, and what is counted."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.engines.backend import HeadEntry, Logits
from specpair.engines.errors import EngineFailure
from specpair.speculation.acceptance.strategies import Strategy
from specpair.speculation.acceptance.token_sources import joined
from specpair.speculation.sampling.sampling import Sampling
from tests.verifier_server.engine.bench import Bench, plain
from tests.verifier_server.engine.virtual import SCRIPT, World, fed, linear
from verifier_server.engine.interface import EngineObserver
from verifier_server.sessions import Session

PROMPT = [256, 1, 2]
TEXT = plain(SCRIPT, PROMPT, 200)
DEPTH = 4


class FailingHead(ScriptedBackend):
    """Its head fails from its second step on."""

    def _extend_head(self, batch: Sequence[HeadEntry]) -> Logits:
        if self.head_steps:
            raise EngineFailure("the head is gone")
        return super()._extend_head(batch)


class Counting(EngineObserver):
    def __init__(self) -> None:
        self.passes: list[tuple[int, int, int]] = []  # tokens, judged, accepted of each that committed
        self.target_decoded_tokens = 0

    def committed(self, session: Session, tokens: int, judged: int, accepted: int, since: float, first: bool) -> None:
        self.passes.append((tokens, judged, accepted))

    def target_decoded(self, tokens: int) -> None:
        self.target_decoded_tokens += tokens


def world_of(
    agreement: float = 1.0,
    *,
    script: Script = SCRIPT,
    depth: int = DEPTH,
    context: int = 4096,
    batch: int = 512,
    kind: type[ScriptedBackend] = ScriptedBackend,
    cost: object = linear,
    **options: object,
) -> World:
    script = replace(script, head_agreement=agreement)
    backend = kind(script, slots=4, context_length=context, max_batch_tokens=batch, head_depth=depth)
    return World(backend, cost, **options)  # type: ignore[arg-type]


def written(world: World, prompt: Sequence[int] = PROMPT, **options: object) -> Session:
    """A session that the verifier has written by itself for a second."""
    session = world.open(list(prompt), self_continue=True, **options)  # type: ignore[arg-type]
    world.ask(session)
    world.run(world.now + 1.0)
    return session


def marks(session: Session) -> str:
    return joined(session.details.sources)


@pytest.mark.parametrize("agreement", [0.0, 0.8, 1.0])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(9, 0.9)], ids=["greedy", "sampled"])
def test_the_text_is_the_target_s_and_takes_fewer_passes(agreement: float, sampling: Sampling) -> None:
    world = world_of(agreement)
    session = written(world, max_tokens=30, sampling=sampling)
    assert session.tokens[3:] == plain(SCRIPT, PROMPT, 30, sampling)
    if agreement == 1.0:
        assert marks(session) == "b" + "hhhht" * 5 + "hhht", "the last token of a text is none of its predictions"
        assert (session.drafted, session.accepted, len(world.plans)) == (23, 23, 7)
    else:
        judged = marks(session).count("h") + marks(session).count("x")
        assert (session.drafted, session.accepted) == (judged, marks(session).count("h"))
        assert len(world.plans) == 1 + 29 - session.accepted


def test_rejected_predictions_are_marked() -> None:
    assert marks(written(world_of(0.0), max_tokens=5)) == "btxxxtxxtxt"


def test_nothing_is_predicted_where_a_token_takes_as_long_as_a_pass() -> None:
    times = [0.01 * width for width in range(1, 18)]
    session = written(world_of(cost=lambda plan: 0.01 * plan.tokens, pass_times=times), max_tokens=30)
    assert marks(session) == "b" + "t" * 29


def test_an_end_token_that_was_predicted_ends_the_text() -> None:
    ending = Script(seed=5, end_bias=6.0)
    for number in range(12):
        prompt = [256, number]
        text = plain(ending, prompt, 200)
        session = written(world_of(script=ending), prompt)
        assert (session.tokens[2:], session.finish_reason) == (text, "stop")
        # Its first token comes from the prefill; predictions end with the end token, behind which nothing is judged.
        assert "x" not in marks(session) and session.drafted == session.accepted == marks(session).count("h")


def test_no_token_is_predicted_beyond_the_context() -> None:
    world = world_of(context=16)
    session = written(world)
    assert (session.tokens[3:], session.finish_reason) == (TEXT[:13], "length")
    assert marks(session) == "b" + "hhhht" * 2 + "ht"


def test_sessions_share_the_room_of_a_pass() -> None:
    world = world_of(batch=8)
    sessions = [world.open([256, number], self_continue=True) for number in range(3)]
    for session in sessions:
        world.ask(session)
    world.run(1.0)
    assert max(sum(fed(plan).values()) for _, plan in world.plans) == 6, "one token for each of three"
    for number, session in enumerate(sessions):
        generated = session.tokens[2:]
        assert generated == plain(SCRIPT, [256, number], len(generated)) and "ht" in marks(session)


def test_a_strategy_that_takes_no_drafts_gets_no_predictions() -> None:
    world = world_of()
    session = written(world, strategy=Strategy.GREEDY)
    assert set(marks(session)[1:]) == {"t"} and world.backend.head_steps == 0
    session = written(world, strategy=Strategy.DETERMINISTIC, sampling=Sampling(3, 0.9))
    generated = session.tokens[3:]
    assert generated == TEXT[: len(generated)] and marks(session).startswith("bhhhht")


def test_a_request_is_judged_without_predictions() -> None:
    world = world_of()
    session = written(world)
    position, judged = len(session.tokens), []
    world.ask(session, None, [*TEXT[position - 3 : position], 7], lambda answer: judged.append(answer.judged))
    before = len(world.plans)
    world.run(world.now + 0.03)
    assert judged == [4] and fed(world.plans[before][1]) == {session.id: 5}


def test_what_was_predicted_is_told_to_the_observer() -> None:
    observer = Counting()
    session = written(world_of(observer=observer), max_tokens=12)
    assert session.finish_reason == "length"
    # Draft tokens are those of clients and of server-side drafting, not what the head predicts for such steps.
    assert observer.passes == [(1, 0, 0), (5, 0, 0), (5, 0, 0), (1, 0, 0)]
    assert observer.target_decoded_tokens == 11


def test_a_head_that_fails_ends_the_predictions_of_a_step_only() -> None:
    world = world_of(kind=FailingHead)
    session = written(world, max_tokens=40)
    assert session.tokens[3:] == TEXT[:40]
    assert marks(session) == "bht" + "t" * 37, "the failure came after one prediction, then before any"


def test_a_step_takes_the_time_of_the_head_too() -> None:
    times = [0.025] * 17
    bench = Bench(backend=ScriptedBackend(SCRIPT, head_depth=DEPTH), clock=lambda: 0.0, pass_times=times)
    session, scheduler = bench.open(PROMPT), bench.scheduler
    bench.prefill(session)
    session.self_continue = True
    plan = scheduler.plan(0.0)
    assert plan is not None
    ticks = iter(range(100))
    scheduler.predict(plan, lambda: float(next(ticks)))
    assert plan.head_time == len(plan.parts[0].fresh) == DEPTH
    scheduler.conclude(plan, bench.backend.extend(plan.batch), 20.0, 20.5)
    assert session.tokens[3:] == TEXT[:6] and session.target_decoded_time == DEPTH + 0.5
