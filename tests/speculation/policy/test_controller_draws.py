"""Drafts that were drawn are sent, every one and once: to drop some for what they are would favour the others."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from speculation.acceptance.draft_probs import Weights
from speculation.drafts.ngram import NgramIndex
from speculation.drafts.tree import Prediction
from speculation.policy.controller import SpeculationController
from speculation.policy.schedule import LOCKSTEP, Mechanisms
from speculation.policy.timing import LatencyModel
from speculation.policy.verifier_timeline import InFlightDraft

END = 9


@dataclass(frozen=True)
class World:
    """Costs in milliseconds, and a drafter that is right at a share of the places and says anything of itself."""

    draft_ms: float
    link_ms: float
    pass_ms: float
    right: float
    ids: int  # that the text is made of: of few, it repeats itself
    seed: int
    length: int | None = None  # fixed drafts a guess
    max_drafts: int = 64
    lookup: bool = False
    limit: int = 120


worlds = st.builds(
    World,
    draft_ms=st.sampled_from([0.0, 0.5, 8.0, 400.0]),
    link_ms=st.sampled_from([0.2, 5.0, 100.0]),
    pass_ms=st.sampled_from([1.0, 40.0]),
    right=st.sampled_from([0.0, 0.3, 0.7, 0.97]),
    ids=st.sampled_from([2, 8]),
    seed=st.integers(0, 10**6),
    length=st.none() | st.integers(0, 6),
    max_drafts=st.sampled_from([0, 1, 3, 64]),
    lookup=st.booleans(),
    limit=st.integers(12, 120),
)


@dataclass
class Course:
    drawn: list[Weights]  # by identity: each was made for one draft
    in_flight_drafts: list[InFlightDraft]
    left_over: list[int]  # drawn before a guess and not in it, guess by guess
    at_once: int = 0  # times that a guess left while a draft was made

    def times_sent(self, weights: Weights) -> int:
        return sum(each is weights for in_flight_draft in self.in_flight_drafts for each in in_flight_draft.probs or ())


def live(world: World, always_send: bool = True) -> Course:
    """A whole text, asked and told in the order in which the draft loop does."""
    rng = np.random.default_rng(world.seed)
    times = LatencyModel([world.pass_ms + number * 0.1 for number in range(17)])
    times.exchanged(world.link_ms, 0.0, 0.0)
    index = NgramIndex() if world.lookup else None
    prompt = rng.integers(0, world.ids, 10).tolist()
    controller = SpeculationController(
        prompt,
        world.limit,
        {END},
        times,
        max_drafts=world.max_drafts,
        length=world.length,
        mechanisms=LOCKSTEP,
        lookup=index,
        always_send=always_send,
    )
    course, now, waiting = Course([], [], []), 0.0, 0
    while not controller.finished:
        in_flight_drafts, predictions = [], []
        for _ in range(2):  # the second time behind `reflect`, when a draft has taken its time already
            while (in_flight_draft := controller.next_guess(now)) is not None:
                in_flight_drafts.append(in_flight_draft)
                course.in_flight_drafts.append(in_flight_draft)
                course.left_over.append(waiting - sum(not found for found in in_flight_draft.found))
                waiting = 0
            step = controller.next_step(now)
            if step is not None:
                token = int(rng.integers(0, world.ids))
                weights: Weights = {token: 0.5, 8: 0.5}
                course.drawn.append(weights)
                predictions.append(Prediction(token, float(rng.random()), probs=weights))
                now += world.draft_ms
                waiting += 1
            controller.reflect()
        course.at_once += bool(in_flight_drafts and predictions)
        for in_flight_draft in in_flight_drafts:
            stood = 0
            while stood < len(in_flight_draft.drafts) and rng.random() < world.right:
                stood += 1
            text = in_flight_draft.drafts[:stood]
            if END not in text:
                token = int(rng.integers(0, world.ids)) if rng.random() < 0.995 else END
                fallen = in_flight_draft.drafts[stood] if stood < len(in_flight_draft.drafts) else None
                text = [*text, token if token != fallen else (token + 1) % world.ids]
            text = text[: world.limit - in_flight_draft.position]
            now += world.link_ms + world.pass_ms
            controller.answered(in_flight_draft, len(in_flight_draft.drafts), 0.0, world.pass_ms, now)
            over = in_flight_draft.position + len(text) >= world.limit or END in text
            controller.committed(in_flight_draft.position, text, over, now)
        if predictions:
            controller.drafted(predictions, 1, now)
    return course


# The draft path was lengthened by look-ups between planning and the draft step: one drawn token more than was sent.
@example(World(0.0, 0.2, 1.0, right=0.0, ids=2, seed=0, length=3, max_drafts=3, lookup=True, limit=31))
@given(worlds)
def test_every_draft_that_was_drawn_goes_with_the_next_guess(world: World) -> None:
    course = live(world)
    assert not course.at_once
    assert not any(course.left_over), "each guess holds all that was drawn before it, and nothing else but look-ups"
    assert all(course.times_sent(weights) == 1 for weights in course.drawn)
    for in_flight_draft in course.in_flight_drafts:
        assert len(in_flight_draft.drafts) <= world.max_drafts
        assert in_flight_draft.end < world.limit, "the last place is the target's own"
        assert in_flight_draft.probs is not None
        for token, found, weights in zip(
            in_flight_draft.drafts, in_flight_draft.found, in_flight_draft.probs, strict=True
        ):
            assert token in weights
            assert not found or weights == {token: 1.0}, "what was looked up is sure of itself"


def test_what_was_not_drawn_may_be_left_out() -> None:
    """A drafter that names something for want of better, and does not believe it: to judge that would cost a draft."""
    controller = SpeculationController(
        [1, 2], 99, {END}, LatencyModel([10.0, 20.0, 30.0]), max_drafts=8, mechanisms=LOCKSTEP, always_send=True
    )
    times = 0
    for _ in range(40):
        in_flight_draft = controller.next_guess(0.0)
        if in_flight_draft is None:
            assert controller.next_step(0.0) is not None
            controller.drafted([Prediction(5, 0.0)], 1, 0.0)
            continue
        times += len(in_flight_draft.drafts)
        controller.answered(in_flight_draft, len(in_flight_draft.drafts), 0.0, 10.0, 0.0)
        controller.committed(in_flight_draft.position, [7], False, 0.0)
        controller.reflect()
    assert times <= 2, "once it is known how such drafts fare"


@pytest.mark.parametrize("seed", [0, 3])
def test_else_some_would_be_kept_back(seed: int) -> None:
    """Where the rule does not hold, a guess of what was looked up overtakes a slow draft, which is never sent."""
    world = World(8.0, 0.2, 1.0, 0.0, 8, seed, lookup=True)
    free, bound = live(world, always_send=False), live(world)
    assert free.at_once and any(free.left_over)
    assert bound.drawn and not any(bound.left_over)


def test_guesses_say_nothing_of_the_kind_unasked() -> None:
    assert all(
        in_flight_draft.probs is None
        for in_flight_draft in live(World(0.5, 5.0, 40.0, 0.9, 8, 5), always_send=False).in_flight_drafts
    )


@pytest.mark.parametrize("mechanisms", [Mechanisms(), Mechanisms(in_flight=1, corrections=False, self_continue=False)])
def test_it_goes_in_lockstep_only(mechanisms: Mechanisms) -> None:
    with pytest.raises(ValueError, match="in lockstep only"):
        SpeculationController(
            [0], 10, frozenset(), LatencyModel([]), max_drafts=4, mechanisms=mechanisms, always_send=True
        )
