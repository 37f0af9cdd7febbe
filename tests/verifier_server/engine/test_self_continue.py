"""Self-continuation: when it starts, how far it goes, and that drafts are judged exactly."""

import random
from collections.abc import Sequence

import pytest

from backends.scripted import Script, ScriptedBackend
from specpair.engines.backend import Entry, Logits
from specpair.engines.errors import EngineFailure
from tests.verifier_server.engine.bench import Bench, plain
from tests.verifier_server.engine.virtual import SCRIPT, World, fed, make_world
from verifier_server.engine.arrived_drafts import Answer
from verifier_server.engine.composer import BatchPlan
from verifier_server.engine.sequence_state import LEAD, SILENCE
from verifier_server.sessions import Session

PROMPT = [256, 1, 2]
TEXT = plain(SCRIPT, PROMPT, 200)
STEP = 0.0252  # seconds of a pass over one token
HALF = STEP / 2


def opened(world: World, prompt: Sequence[int] = PROMPT, self_continue: bool = True) -> Session:
    """A session with its first token."""
    session = world.open(list(prompt), self_continue=self_continue)
    world.ask(session)
    while len(session.tokens) == session.prompt_len:
        world.run(world.now + 0.0001)
    return session


def continued(plan: BatchPlan) -> list[str]:
    """Sessions for which a pass runs a self-continuation step."""
    return [part.sequence.session.id for part in plan.parts if part.run is None]


def continuation_times(world: World, since: float) -> list[float]:
    """When passes with self-continuation steps began."""
    return [when for when, plan in world.plans if continued(plan) and when >= since]


def verified(world: World, session: Session, **options: float) -> Answer:
    """Send a request now and wait for its answer."""
    answers: list[Answer] = []
    world.ask(session, None, [], answers.append, **options)
    while not answers:
        world.run(world.now + 0.0001)
    return answers[0]


def test_it_stops_after_two_seconds_without_a_request() -> None:
    world = make_world(cost=lambda plan: 0.1, pass_times=[0.1] * 17)
    session = opened(world)  # heard of at 0.0
    world.run(10.0)
    assert continuation_times(world, 0.0)[-1] == pytest.approx(SILENCE, abs=0.101)
    assert continuation_times(world, SILENCE + 0.001) == []
    so_far = len(session.tokens)
    assert so_far < 3 + LEAD, "the silence stopped it, not the lead"
    verified(world, session)
    world.run(world.now + 1.0)
    assert len(session.tokens) > so_far + 8, "it continues after the next request"


def test_it_stops_in_time_for_an_announced_request() -> None:
    """Steps that end before the request arrives are run; a step that would not is not started."""
    world = make_world()
    session = opened(world)
    verified(world, session, next_in=3.3 * STEP)
    answered = world.now
    world.run(answered + 3.3 * STEP)
    assert continuation_times(world, answered - 0.0005) == pytest.approx(
        [answered + n * STEP for n in range(3)], abs=0.0006
    )
    answer = verified(world, session)
    assert answer.queue == pytest.approx(0.0)


def test_gaps_that_the_client_does_not_state_are_measured() -> None:
    world = make_world()
    session = opened(world)
    for _ in range(6):
        verified(world, session)
        world.run(world.now + 0.3 * STEP)
    verified(world, session)
    answered = world.now
    world.run(answered + 0.2 * STEP)
    assert continuation_times(world, answered - 0.0005) == []
    world.run(answered + STEP)
    assert continuation_times(world, answered)[0] == pytest.approx(answered + 0.3 * STEP + HALF, abs=0.0005)


def test_it_is_the_first_left_out_of_a_full_batch() -> None:
    world = make_world(batch=16)
    session, other = opened(world), opened(world, [256, 7], self_continue=False)
    world.run(world.now + 3.0)
    verified(world, session)
    for drafts, held in ((14, {other.id: 15, session.id: 1}), (15, {other.id: 16})):
        world.ask(other, None, [0] * drafts)
        before = len(world.plans)
        world.run(world.now + 3 * STEP)
        assert fed(world.plans[before][1]) == held


def test_late_drafts_are_compared_with_target_decoded_tokens() -> None:
    world = make_world()
    session = opened(world)
    world.run(world.now + 4.5 * STEP)  # 5 tokens are committed, a step is running
    assert session.tokens[3:] == TEXT[:5]
    answers: list[Answer] = []
    passes = len(world.plans)
    world.ask(session, 4, TEXT[1:3], answers.append)
    world.ask(session, 4, [TEXT[1], 255, 255], answers.append)
    world.ask(session, 4, TEXT[1:9], answers.append)
    world.run(world.now + 1.7 * STEP)
    first, second, third = answers
    assert first.tokens[:4] == second.tokens[:4] == TEXT[1:5]
    assert (first.accepted, second.accepted, first.judged, second.judged) == (2, 1, 0, 0)
    assert (third.tokens, third.accepted, third.judged) == (TEXT[1:10], 8, 3)
    _, plan = world.plans[passes]
    assert (fed(plan), continued(plan)) == ({session.id: 4}, [])


class Failing(ScriptedBackend):
    """Fails from pass `sound` on."""

    sound = 10**9

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self.passes >= self.sound:
            self.passes += 1
            raise EngineFailure("a device went away")
        return super()._forward(batch)


def test_after_a_failed_pass_it_waits_for_a_request() -> None:
    backend = Failing(SCRIPT)
    now = [0.0]
    bench = Bench(backend=backend, clock=lambda: now[0])
    session = bench.open(PROMPT)
    session.self_continue = True
    bench.prefill(session)
    backend.sound = backend.passes
    for _ in range(5):
        bench.engine.step()
    assert backend.passes == backend.sound + 1
    backend.sound = 10**9
    assert bench.verify(session, 4).tokens == TEXT[1:2]
    bench.engine.step()
    assert session.tokens[3:] == TEXT[:3]


@pytest.mark.parametrize("round_trip", [0.2, 0.9, 1.7, 4.0])
def test_it_is_never_slower_than_the_verifier_alone(round_trip: float) -> None:
    """A client whose drafts are all rejected, at any RTT: nearly as many tokens as by plain decoding."""
    world = make_world()
    session = opened(world)
    began = world.now

    def again(answer: Answer) -> None:
        known = answer.total_tokens
        world.after(round_trip * STEP, lambda: world.ask(session, known, [255], again, next_in=round_trip * STEP))

    world.ask(session, None, [255], again, next_in=round_trip * STEP)
    world.run(began + 100 * STEP)
    lockstep = 100 / (1 + round_trip)
    alone = 100.0
    got = len(session.tokens) - 4
    assert got >= (0.93 * alone if round_trip > 0.5 else 0.95 * lockstep)
    assert session.tokens[3:] == plain(SCRIPT, PROMPT, got + 1)


@pytest.mark.parametrize("seed", range(5))
def test_self_continuation_stays_within_its_lead(seed: int) -> None:
    """Also among other sessions: never more than `LEAD` tokens beyond the position that the client has sent."""
    chance = random.Random(seed)
    world = World(ScriptedBackend(Script(seed=3), slots=4, context_length=2048))
    sessions = [world.open([256, number], self_continue=True) for number in range(4)]
    known = {session: session.prompt_len for session in sessions}

    def check() -> None:
        session = chance.choice(sessions)
        if len(session.tokens) > session.prompt_len:
            known[session] = len(session.tokens)
            world.ask(session)
        assert all(len(each.tokens) <= known[each] + LEAD for each in sessions)
        world.after(chance.uniform(0.0, 0.5), check)

    for session in sessions:
        world.ask(session)
    world.after(0.1, check)
    world.run(20.0)
    assert any(len(session.tokens) > 200 for session in sessions)
