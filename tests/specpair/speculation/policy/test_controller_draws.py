"""Every drawn draft token is sent exactly once. Dropping tokens for their value would bias the output."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specpair.speculation.acceptance.draft_probs import Weights
from specpair.speculation.drafts.acceptance_model import AcceptanceModel
from specpair.speculation.drafts.lookups import Lookups
from specpair.speculation.drafts.tree import Proposal
from specpair.speculation.policy.controller import SpeculationController
from specpair.speculation.policy.draft_length import DraftLength
from specpair.speculation.policy.experience import Estimates
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms
from specpair.speculation.policy.timing import LatencyModel
from specpair.speculation.policy.verifier_timeline import InFlightDraft

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
            [0], 10, frozenset(), Estimates.untaught([]), DraftLength(None, 4), mechanisms=mechanisms, always_send=True
        )
