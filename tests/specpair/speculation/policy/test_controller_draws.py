"""Every drawn draft token is sent exactly once; look-ups stand in for a draft model that does not pay."""

import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.scripted import Script
from specpair.speculation.acceptance.draft_probs import Weights
from specpair.speculation.drafting.acceptance_model import AcceptanceModel
from specpair.speculation.drafting.lookups import Lookups
from specpair.speculation.drafting.tree import Proposal
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.policy.timing import LatencyModel
from specpair.speculation.policy.verifier_timeline import InFlightDraft
from tests.examples import examples
from tests.specpair.speculation.policy.virtual_pair import LENGTH, Knowing, run, text

END = 9


@dataclass(frozen=True)
class World:
    """Costs in seconds, and a drafter that is right at a share of the positions, with random confidence."""

    draft: float
    link: float
    step: float
    right: float
    ids: int  # number of ids in the text; with few, the text repeats itself
    seed: int
    length: int | None = None  # fixed draft length
    max_drafts: int = 64
    lookup: bool = False
    limit: int = 120


worlds = st.builds(
    World,
    draft=st.sampled_from([0.0, 0.0005, 0.008, 0.4]),
    link=st.sampled_from([0.0002, 0.005, 0.1]),
    step=st.sampled_from([0.001, 0.04]),
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
    """What happened in one text."""

    drawn: list[Weights]  # by identity: each was made for one draft token
    drafts_in_flight: list[InFlightDraft]
    left_over: list[int]  # for each request, the tokens drawn before it that are not in it
    at_once: int = 0  # times that a request was sent during a draft step

    def times_sent(self, weights: Weights) -> int:
        return sum(each.probs is weights for in_flight_draft in self.drafts_in_flight for each in in_flight_draft.draft)


def generate(world: World, always_send: bool = True) -> Course:
    """Generate a whole text, calling the controller in the order in which the generation loop does."""
    rng = np.random.default_rng(world.seed)
    times = LatencyModel([world.step + number * 0.0001 for number in range(17)])
    times.exchanged(world.link, 0.0, 0.0)
    prompt = rng.integers(0, world.ids, 10).tolist()
    controller = SpeculationController(
        prompt,
        world.limit,
        {END},
        Estimates(times, AcceptanceModel()),
        DraftLength(world.length, world.max_drafts),
        mechanisms=LOCKSTEP,
        lookups=Lookups(in_text=world.lookup),
        always_send=always_send,
    )
    course, now, waiting = Course([], [], []), 0.0, 0
    while not controller.finished:
        drafts_in_flight, proposals = [], []
        for _ in range(2):  # the second time after `reflect`, when the draft step has taken its time
            while (in_flight_draft := controller.next_draft(now)) is not None:
                drafts_in_flight.append(in_flight_draft)
                course.drafts_in_flight.append(in_flight_draft)
                course.left_over.append(waiting - sum(not each.source.looked_up for each in in_flight_draft.draft))
                waiting = 0
            step = controller.next_step(now)
            if step is not None:
                token = int(rng.integers(0, world.ids))
                weights: Weights = {token: 0.5, 8: 0.5}
                course.drawn.append(weights)
                proposals.append(Proposal(token, float(rng.random()), probs=weights))
                now += world.draft
                waiting += 1
            controller.reflect()
        course.at_once += bool(drafts_in_flight and proposals)
        for in_flight_draft in drafts_in_flight:
            accepted = 0
            while accepted < len(in_flight_draft.draft) and rng.random() < world.right:
                accepted += 1
            text = in_flight_draft.draft.ids[:accepted]
            if END not in text:
                token = int(rng.integers(0, world.ids)) if rng.random() < 0.995 else END
                rejected = in_flight_draft.draft.ids[accepted] if accepted < len(in_flight_draft.draft) else None
                text = [*text, token if token != rejected else (token + 1) % world.ids]
            text = text[: world.limit - in_flight_draft.draft.position]
            now += world.link + world.step
            controller.answered(in_flight_draft, len(in_flight_draft.draft), 0.0, world.step, now)
            over = in_flight_draft.draft.position + len(text) >= world.limit or END in text
            controller.committed(in_flight_draft.draft.position, text, over, now)
        if proposals:
            controller.drafted(proposals, 1, now)
    return course


# A second look-up lengthened the path between the plan and the draft step, so one more token was drawn than fitted.
@example(World(0.0, 0.0002, 0.001, right=0.0, ids=2, seed=0, length=3, max_drafts=3, lookup=True, limit=31))
@given(worlds)
def test_every_drawn_token_is_sent_in_the_next_request(world: World) -> None:
    course = generate(world)
    assert not course.at_once
    assert not any(course.left_over), "each request holds all tokens drawn before it, and otherwise look-ups only"
    assert all(course.times_sent(weights) == 1 for weights in course.drawn)
    for in_flight_draft in course.drafts_in_flight:
        assert len(in_flight_draft.draft) <= world.max_drafts
        assert in_flight_draft.draft.position + len(in_flight_draft.draft) < world.limit, (
            "the last position belongs to the target"
        )
        for each in in_flight_draft.draft:
            assert each.probs is not None
            assert each.token in each.probs
            assert not each.source.looked_up or each.probs == {each.token: 1.0}, "a looked-up token has probability 1"


@pytest.mark.parametrize(
    "mechanisms", [Mechanisms(), Mechanisms(in_flight=1, after_recovered=False, self_continue=False)]
)
def test_always_send_works_in_lockstep_only(mechanisms: Mechanisms) -> None:
    with pytest.raises(ValueError, match="in lockstep only"):
        SpeculationController(
            [0],
            10,
            frozenset(),
            Estimates(LatencyModel(), AcceptanceModel()),
            DraftLength(None, 4),
            mechanisms=mechanisms,
            always_send=True,
        )


REPEATS = Script(seed=3, support=2)  # so few different continuations that the text soon repeats itself


def rate(script: Script, right: float, draft: float, lookup: bool, mechanisms: Mechanisms = Mechanisms()) -> float:
    """Tokens per second with a target of 40 ms a step."""
    world: dict[str, Any] = {"rtt": 0.01, "step": 0.04, "wider": 0.0003, "draft": draft}
    return run(
        Knowing(right, script=script), mechanisms, script=script, lookup=lookup, **world
    ).course.tokens_per_second


@pytest.mark.parametrize("mechanisms", [Mechanisms(), Mechanisms(self_continue=False), LOCKSTEP], ids=str)
def test_lookup_replaces_a_slow_draft_model_in_repetitive_text(mechanisms: Mechanisms) -> None:
    target_alone = 1.0 / 0.04
    slow = rate(REPEATS, 0.9, 0.4, lookup=False, mechanisms=mechanisms)
    assert slow < 1.3 * target_alone
    assert rate(REPEATS, 0.9, 0.4, lookup=True, mechanisms=mechanisms) > 1.8 * slow


def _controller(tokens: list[int], *, lookup: bool = True) -> SpeculationController:
    times = LatencyModel([0.04, 0.0405, 0.041])
    times.exchanged(0.01, 0.0, 0.0)
    times.drafted(1, 0.001)
    lookups = Lookups(in_text=lookup)
    return SpeculationController(
        tokens, 1000, frozenset(), Estimates(times, AcceptanceModel()), DraftLength(None, 64), lookups=lookups
    )


def test_in_flight_draft_marks_looked_up_tokens() -> None:
    for lookup in (True, False):
        controller, now = _controller([*range(10, 30)] * 4, lookup=lookup), 0.0
        while (in_flight_draft := controller.next_draft(now)) is None:
            assert controller.next_step(now) is not None
            now += 0.001
            controller.drafted([Proposal(10 + len(controller.text.tree.main()), 0.95)], 1, now)
        assert in_flight_draft.draft.ids[:3] == [10, 11, 12]
        assert all(each.source.looked_up is lookup for each in in_flight_draft.draft)


def test_drafts_are_looked_up_while_the_model_reads_a_prompt() -> None:
    text = [*range(1, 9), 30, 31, 32, 1, 2]  # a short match, which a draft model would beat
    controller = _controller(text)
    step = controller.next_step(0.0)
    assert step is not None and step.tails == [[]]
    assert controller.next_draft(0.041) is None
    in_flight_draft = next(filter(None, (controller.next_draft(now / 1e3) for now in range(42, 82))))
    assert in_flight_draft.draft.ids == [3, 4, 5] and all(each.source.looked_up for each in in_flight_draft.draft)
    controller.drafted([Proposal(99, 0.9)], 13, 0.082)
    assert [node.token for node in controller.text.tree.main()[:2]] == [3, 4], "tokens in flight are not replaced"
    assert [child.token for child in controller.text.tree.root.children or ()] == [3, 99]


TEXT = text()
ABSURD = [number % 256 for number in range(0, 3 * LENGTH, 3)]
DRAFTERS = {"none": (0.0, 5e-5), "useless": (0.0, 0.008), "good": (0.8, 0.008), "slow": (0.8, 0.2)}
EACH_DRAFTER = pytest.mark.parametrize(("right", "draft"), DRAFTERS.values(), ids=DRAFTERS)
EACH_SCHEDULE = pytest.mark.parametrize("mechanisms", [Mechanisms(), LOCKSTEP], ids=["overlapped", "lockstep"])


def edited(share: float, seed: int = 1) -> list[int]:
    """The text with so many of its tokens left out, replaced, or with others before them."""
    rng, tokens = random.Random(seed), list[int]()
    for token in TEXT:
        kind = rng.random() / share
        tokens += [] if kind < 0.33 else [7] if kind < 0.66 else [8, token] if kind < 1.0 else [token]
    return tokens


@cache
def course(
    right: float, draft: float, prediction: tuple[int, ...] | None, mechanisms: Mechanisms, wider: float = 0.0003
) -> Any:
    world: dict[str, Any] = {"rtt": 0.01, "step": 0.04, "wider": wider, "draft": draft}
    return run(Knowing(right), mechanisms, lookup=True, prediction=prediction, **world).course


@EACH_SCHEDULE
@EACH_DRAFTER
def test_a_right_prediction_is_sent_in_long_drafts(right: float, draft: float, mechanisms: Mechanisms) -> None:
    with_it, without = (course(right, draft, each, mechanisms) for each in (tuple(TEXT), None))
    assert with_it.tokens_per_second > 5.0 * without.tokens_per_second
    assert with_it.accepted / with_it.drafts_sent > 20.0, "longer than an automatic draft of a model"
    assert with_it.accepted == with_it.judged


@EACH_SCHEDULE
@EACH_DRAFTER
def test_an_edited_prediction_beats_the_draft_model(right: float, draft: float, mechanisms: Mechanisms) -> None:
    with_it, without = (course(right, draft, each, mechanisms) for each in (tuple(edited(0.05)), None))
    assert with_it.tokens_per_second > 1.5 * without.tokens_per_second


@examples(12)
@given(
    rtt=st.sampled_from([0.0002, 0.04]),
    draft=st.sampled_from([0.0005, 0.03]),
    right=st.sampled_from([0.0, 0.9]),
    wider=st.sampled_from([0.0, 0.008]),
    uneven=st.sampled_from([0.0, 0.5]),
    prediction=st.sampled_from([TEXT, edited(0.1), ABSURD, []]),
    length=st.sampled_from([None, 5]),
    mechanisms=st.sampled_from([Mechanisms(), Mechanisms(self_continue=False), LOCKSTEP]),
)
def test_a_predicted_text_is_finished_under_any_times(mechanisms: Mechanisms, right: float, **world: Any) -> None:
    run(Knowing(right, width=3), mechanisms, lookup=True, step=0.03, count=150, **world)
