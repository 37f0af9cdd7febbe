"""Steps that the verifier takes by itself: when, how far, and that guesses are judged as if nothing had been."""

from collections.abc import Sequence

import pytest

from backends.base import EngineFailure, Entry, Logits
from backends.scripted import Script, ScriptedBackend
from tests.verifier_server.engine.bench import Bench, plain
from tests.verifier_server.engine.virtual import World, fed, linear
from verifier_server.engine.batch_plan import BatchPlan
from verifier_server.engine.requests import Answer
from verifier_server.engine.sequence_state import LEAD, SILENCE
from verifier_server.sessions import Session

SCRIPT = Script(seed=3)
PROMPT = [256, 1, 2]
TEXT = plain(SCRIPT, PROMPT, 200)
STEP = 0.0252  # seconds of a pass over one token
HALF = STEP / 2


def world(rows: int = 4, batch: int = 512, **options: object) -> World:
    return World(ScriptedBackend(SCRIPT, rows=rows, context_length=4096, max_batch_tokens=batch), **options)  # type: ignore[arg-type]


def opened(at: World, prompt: Sequence[int] = PROMPT, goes_on: bool = True) -> Session:
    """A session with its first token."""
    session = at.open(list(prompt), self_continue=goes_on)
    at.ask(session)
    while len(session.tokens) == session.prompt_len:
        at.run(at.now + 0.0001)
    return session


def own(plan: BatchPlan) -> list[str]:
    return [part.sequence.session.id for part in plan.parts if part.run is None]


def own_begins(at: World, since: float) -> list[float]:
    """When passes with own steps began."""
    return [when for when, plan in at.plans if own(plan) and when >= since]


def guessed(at: World, session: Session, **options: float) -> Answer:
    """A guess right now, waited for."""
    answers: list[Answer] = []
    at.ask(session, None, [], answers.append, **options)
    while not answers:
        at.run(at.now + 0.0001)
    return answers[0]


def test_it_goes_on_from_the_first_token_at_once() -> None:
    at = world()
    session = opened(at)
    at.run(at.now + 10.5 * STEP)
    assert own_begins(at, 0.0)[0] == pytest.approx(at.plans[0][0] + linear(at.plans[0][1]))
    assert session.tokens[3:] == TEXT[:11]
    assert session.own_from == [4]
    assert all(plan.tokens == 1 for _, plan in at.plans[1:])


def test_others_do_not_go_on() -> None:
    at = world()
    session = opened(at, goes_on=False)
    at.run(5.0)
    assert len(session.tokens) == 4


def test_it_stays_within_reach_of_what_its_client_knows() -> None:
    at = world()
    session = opened(at)
    at.run(at.now + 1.9)
    assert len(session.tokens) == 3 + LEAD, "the prompt's end is all that the client has said it knows"
    at.ask(session, 3 + 10, [])
    at.run(at.now + 1.9)
    assert len(session.tokens) == 3 + 10 + LEAD
    assert session.tokens[3:] == TEXT[: 10 + LEAD]


def test_a_position_that_cannot_be_moves_nothing() -> None:
    at = world()
    session = opened(at)
    errors: list[str] = []
    at.ask(session, 3000, [], failed=lambda error: errors.append(error.code))
    at.run(at.now + 1.9)
    assert errors == ["position_beyond_committed"]
    assert len(session.tokens) == 4 + LEAD, "no further than from what is committed"


def test_it_stops_when_nothing_is_heard_for_two_seconds() -> None:
    at = world(cost=lambda plan: 0.1, pass_ms=[100.0] * 17)
    session = opened(at)  # heard of at 0.0
    at.run(10.0)
    assert own_begins(at, 0.0)[-1] == pytest.approx(SILENCE, abs=0.101)
    assert own_begins(at, SILENCE + 0.001) == []
    so_far = len(session.tokens)
    assert so_far < 3 + LEAD, "it was the silence that stopped it"
    guessed(at, session)
    at.run(at.now + 1.0)
    assert len(session.tokens) > so_far + 8, "and it goes on when something is heard again"


def test_it_waits_for_a_guess_that_the_client_says_will_come_soon() -> None:
    at = world()
    session = opened(at)
    guessed(at, session, next_in=0.4 * STEP)
    answered = at.now
    at.run(answered + 0.4 * STEP + 0.9 * HALF)
    assert own_begins(at, answered) == []
    at.run(answered + 1.0)
    assert own_begins(at, answered)[0] == pytest.approx(answered + 0.4 * STEP + HALF, abs=0.0005), "then it is void"


def test_it_goes_on_at_once_where_the_client_says_that_it_will_take_half_a_step() -> None:
    at = world()
    session = opened(at)
    guessed(at, session, next_in=0.52 * STEP)
    answered = at.now
    at.run(answered + 0.001)
    assert own_begins(at, answered - 0.0005) == [pytest.approx(answered, abs=0.0005)]


def test_it_stops_in_time_for_a_guess_that_comes_later() -> None:
    """Steps that end before the guess comes are taken, one that would not is left."""
    at = world()
    session = opened(at)
    guessed(at, session, next_in=3.3 * STEP)
    answered = at.now
    at.run(answered + 3.3 * STEP)
    assert own_begins(at, answered - 0.0005) == pytest.approx([answered + n * STEP for n in range(3)], abs=0.0006)
    answer = guessed(at, session)
    assert answer.queue_ms == pytest.approx(0.0)


def test_what_the_client_does_not_say_is_measured() -> None:
    at = world()
    session = opened(at)
    for _ in range(6):
        guessed(at, session)
        at.run(at.now + 0.3 * STEP)
    guessed(at, session)
    answered = at.now
    at.run(answered + 0.2 * STEP)
    assert own_begins(at, answered - 0.0005) == []
    at.run(answered + STEP)
    assert own_begins(at, answered)[0] == pytest.approx(answered + 0.3 * STEP + HALF, abs=0.0005)


def test_a_guess_that_is_late_is_not_waited_for_with_a_step_that_could_be_taken() -> None:
    """Such a pass is held open for others, but not for the sessions that it is for."""
    at = world()
    session = opened(at)
    for gap in (0.3, 0.68) * 4:
        guessed(at, session)
        at.run(at.now + gap * STEP)
    guessed(at, session)
    answered = at.now
    at.run(answered + STEP)
    assert own_begins(at, answered)[0] == pytest.approx(answered + 0.3 * STEP + HALF, abs=0.0005)


def test_it_rides_along_with_others_whenever_a_guess_is_expected() -> None:
    at = world()
    session, other = opened(at), opened(at, [256, 7], goes_on=False)
    guessed(at, session, next_in=0.4 * STEP)
    at.ask(other)
    at.run(at.now + 0.001)
    assert fed(at.plans[-1][1]) == {other.id: 1, session.id: 1}
    assert own(at.plans[-1][1]) == [session.id]


def test_it_is_the_first_left_out_of_a_full_batch() -> None:
    at = world(batch=16)
    session, other = opened(at), opened(at, [256, 7], goes_on=False)
    at.run(at.now + 3.0)
    guessed(at, session)
    for drafts, held in ((14, {other.id: 15, session.id: 1}), (15, {other.id: 16})):
        at.ask(other, None, [0] * drafts)
        before = len(at.plans)
        at.run(at.now + 3 * STEP)
        assert fed(at.plans[before][1]) == held


def test_it_takes_a_row_from_nobody_and_gives_its_own_up() -> None:
    at = world(rows=1)
    session = opened(at)
    at.run(at.now + 2 * STEP)
    other = opened(at, [256, 7], goes_on=False)
    so_far = len(session.tokens)
    at.run(at.now + 1.0)
    assert (session.row, other.row, len(session.tokens)) == (None, 0, so_far)
    guessed(at, session)
    at.run(at.now + 3 * STEP)
    assert len(session.tokens) > so_far + 2, "with the next guess it is there again"


def test_a_guess_that_waits_is_run_instead() -> None:
    at = world()
    session = opened(at)  # and a step of its own has begun
    at.ask(session, None, TEXT[1:4])
    at.run(at.now + STEP)
    _, plan = at.plans[-1]
    assert (fed(plan), own(plan)) == ({session.id: 3}, []), "the first draft is known by now"


def test_late_drafts_are_compared_with_what_it_has_committed() -> None:
    at = world()
    session = opened(at)
    at.run(at.now + 4.5 * STEP)  # 5 are there, and a step is under way
    assert session.tokens[3:] == TEXT[:5]
    answers: list[Answer] = []
    passes = len(at.plans)
    at.ask(session, 4, TEXT[1:3], answers.append)
    at.ask(session, 4, [TEXT[1], 255, 255], answers.append)
    at.ask(session, 4, TEXT[1:9], answers.append)
    at.run(at.now + 1.7 * STEP)
    first, second, third = answers
    assert first.tokens[:4] == second.tokens[:4] == TEXT[1:5]
    assert (first.accepted, second.accepted, first.judged, second.judged) == (2, 1, 0, 0)
    assert (third.tokens, third.accepted, third.judged) == (TEXT[1:10], 8, 3)
    _, plan = at.plans[passes]
    assert (fed(plan), own(plan)) == ({session.id: 4}, [])


def test_which_tokens_were_its_own_is_on_record() -> None:
    at = world()
    session = opened(at)
    at.run(at.now + 2.5 * STEP)  # 3 are there, the 4th under way
    at.ask(session, 4, TEXT[1:6])
    at.run(at.now + 1.6 * STEP)
    assert session.tokens[3:] == TEXT[:7]
    assert session.own_from == [4, 7], "three of its own, then two drafts that stand and one more"


class Failing(ScriptedBackend):
    """Fails from some pass on."""

    sound = 10**9

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        if self.passes >= self.sound:
            self.passes += 1
            raise EngineFailure("a device went away")
        return super()._forward(batch)


def test_an_engine_that_fails_is_not_asked_again_unasked() -> None:
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


def test_it_ends_where_the_text_ends() -> None:
    script, prompt = Script(seed=8, end_bias=9.0), [256, 1, 2, 3]
    text = plain(script, prompt, 300)
    assert 2 < len(text) < 64
    at = World(ScriptedBackend(script, context_length=1024))
    session = opened(at, prompt)
    at.run(3.0)
    assert (session.tokens[4:], session.finish_reason) == (text, "stop")
    assert len(at.plans) == len(text)


@pytest.mark.parametrize("round_trip", [0.2, 0.9, 1.7, 4.0])
def test_it_is_never_slower_than_the_verifier_alone(round_trip: float) -> None:
    """A client whose every draft is wrong, at any distance: as many tokens as by plain decoding, or all but."""
    at = world()
    session = opened(at)
    began = at.now

    def again(answer: Answer) -> None:
        known = answer.total_tokens
        at.after(round_trip * STEP, lambda: at.ask(session, known, [255], again, next_in=round_trip * STEP))

    at.ask(session, None, [255], again, next_in=round_trip * STEP)
    at.run(began + 100 * STEP)
    lockstep = 100 / (1 + round_trip)
    alone = 100.0
    got = len(session.tokens) - 4
    assert got >= (0.93 * alone if round_trip > 0.5 else 0.95 * lockstep)
    assert session.tokens[3:] == plain(SCRIPT, PROMPT, got + 1)
