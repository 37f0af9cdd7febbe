"""The draft length agrees with an exhaustive calculation over all lengths and all outcomes of a round."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.drafting.tree import TreeNode
from specpair.speculation.policy.draft_length import MAX_AUTO, DraftLength, prospects, worth_sending
from specpair.speculation.policy.schedule import LOCKSTEP, Mechanisms, RejectionPolicy, best_rejection_policy
from specpair.speculation.policy.timing import LatencyModel
from tests.examples import examples

OVERLAPPED = Mechanisms(in_flight=1, after_recovered=False, self_continue=False)
PIPELINED = replace(OVERLAPPED, in_flight=6)


@dataclass(frozen=True)
class Costs:
    """Stands in for a LatencyModel with measured times."""

    draft_time: float
    link: float
    passes: tuple[float, ...]  # by number of draft tokens
    queue: float = 0.0
    draft_known: bool = True
    is_shared: bool = False
    margin: float = 0.0
    head: float = 0.0  # that it adds to a self-continuation step
    own: float = 1.0  # tokens of such a step

    def draft(self) -> float:
        return self.draft_time

    def verify(self, drafts: int) -> float:
        return self.passes[drafts]

    def cost(self, drafts: int) -> float:
        return self.passes[drafts]

    def by_itself(self) -> tuple[float, float]:
        return self.passes[0] + self.head, self.own


def _chances(each: Sequence[float]) -> list[float]:
    return [1.0, *accumulate(each, mul)]


CHANCES = st.lists(st.floats(0.0, 1.0), min_size=MAX_AUTO + 1, max_size=MAX_AUTO + 1).map(_chances)
COSTS = st.builds(
    Costs,
    draft_time=st.floats(0.001, 30.0),
    link=st.floats(0.0, 150.0),
    passes=st.lists(st.floats(0.001, 20.0), min_size=MAX_AUTO + 2, max_size=MAX_AUTO + 2).map(
        lambda rises: tuple(accumulate(rises))
    ),
    queue=st.floats(0.0, 20.0),
)


def _rate(
    costs: Costs, chances: Sequence[float], length: int, mechanisms: Mechanisms, next_draft_ready: float
) -> float:
    """Tokens per unit of time of rounds with `length` draft tokens, over all outcomes.

    An outcome is the number of accepted tokens and, where all are accepted, whether the bonus token was predicted.
    """
    tokens = time = 0.0
    for accepted in range(length + 1):
        exactly = chances[accepted] - (chances[accepted + 1] if accepted < length else 0.0)
        tokens += exactly * (accepted + 1)
    judging = costs.verify(length) + costs.queue
    if not mechanisms.overlap:
        return tokens / (length * costs.draft() + costs.link + judging)
    predicted = chances[length + 1]
    behind = (length + 1) * costs.draft() - costs.verify(length)  # how far the drafter lags when the pass ends
    if mechanisms.in_flight == 1:
        behind = max(behind, costs.link)
    time += predicted * (judging + max(0.0, behind))
    time += (1.0 - predicted) * (judging + costs.link + (1.0 - next_draft_ready) * length * costs.draft())
    return tokens / time


@examples(100)
@given(
    costs=COSTS,
    chances=CHANCES,
    mechanisms=st.sampled_from([LOCKSTEP, OVERLAPPED, PIPELINED]),
    next_draft_ready=st.floats(0.0, 1.0),
)
def test_best_length_gives_the_most_tokens_per_second(
    costs: Costs, chances: list[float], mechanisms: Mechanisms, next_draft_ready: float
) -> None:
    found = prospects(costs, chances, mechanisms, next_draft_ready)  # type: ignore[arg-type]
    rates = [_rate(costs, chances, length, mechanisms, next_draft_ready) for length in range(MAX_AUTO + 1)]
    assert found.rate == pytest.approx(max(rates))
    assert rates[found.length] == pytest.approx(max(rates))


@given(costs=COSTS, chances=CHANCES, head=st.floats(0.0, 20.0), own=st.floats(1.0, 8.0))
def test_nothing_is_drafted_where_the_verifier_is_faster_with_its_head(
    costs: Costs, chances: list[float], head: float, own: float
) -> None:
    alone, pipelined = replace(costs, head=head, own=own), replace(PIPELINED, self_continue=True)
    drafted = prospects(costs, chances, PIPELINED, 0.0)  # type: ignore[arg-type]
    found = prospects(alone, chances, pipelined, 0.0)  # type: ignore[arg-type]
    by_itself = own / (costs.passes[0] + head)
    assert found.rate == pytest.approx(max(drafted.rate, by_itself))
    if own > 1.0 and by_itself > drafted.rate:
        assert found.length == 0 and found.rejection_policy.self_continue
    else:
        assert found.length == drafted.length


@examples(100)
@given(costs=COSTS, chances=CHANCES, since=st.integers(0, 20), most=st.integers(0, 20), rate=st.floats(0.0, 1.0))
def test_sent_count_has_the_greatest_value(
    costs: Costs, chances: list[float], since: int, most: int, rate: float
) -> None:
    count = worth_sending(costs, chances, since, min(most, MAX_AUTO), rate)  # type: ignore[arg-type]
    given_ = chances[min(since, len(chances) - 1)]

    def worth(drafts: int) -> float:
        return sum(chances[since + 1 : since + drafts + 1]) - given_ * rate * costs.verify(drafts)

    possible = range(max(0, min(len(chances) - 1 - since, most, MAX_AUTO)) + 1)
    assert count - since in possible
    assert worth(count - since) == pytest.approx(max(map(worth, possible)), abs=1e-9)


@examples(200)
@given(
    path=st.lists(st.tuples(st.floats(0.05, 0.99), st.integers(0, 4)), min_size=1, max_size=4),
    wider=st.floats(0.001, 1.0),
    price=st.floats(0.01, 3.0),
)
def test_what_is_sent_under_a_grammar_is_worth_most(path: list[tuple[float, int]], wider: float, price: float) -> None:
    """A path of draft tokens with a chance, each with forced ones behind it, against all outcomes of each length.

    A forced token is committed with the one before it, and read by this pass or the next one.
    """
    forced = [each for _, run in path for each in (False, *[True] * run)]
    chances = _chances([each for chance, run in path for each in (chance, *[1.0] * run)])

    def value(sent: int) -> float:
        tokens = later = 0.0
        for accepted in range(sent + 1):
            exactly = chances[accepted] - (chances[accepted + 1] if accepted < sent else 0.0)
            run = 0
            while accepted == sent and sent + run < len(forced) and forced[sent + run]:
                run += 1
            tokens += exactly * (accepted + max(1, run))
            later += exactly * max(0, run - 1)
        return tokens - 1.0 - price * wider * (sent + later)

    costs = Costs(1.0, 0.0, tuple(5.0 + wider * drafts for drafts in range(2 * len(forced) + 2)))
    count = worth_sending(costs, chances, 0, len(forced), price, forced)  # type: ignore[arg-type]
    assert value(count) == pytest.approx(max(value(sent) for sent in range(len(forced) + 1)), abs=1e-9)


STEP, MOST = 0.025, 16  # seconds of a pass; draft tokens


class CostsByLink:
    """Stands in for a LatencyModel with measured times."""

    margin = 0.002

    def __init__(self, link: float, draft: float, is_shared: bool = False) -> None:
        self.link, self._draft, self.is_shared = link, draft, is_shared
        self.alone = STEP, 1.0  # seconds of a self-continuation step, and its tokens

    def draft(self) -> float:
        return self._draft

    def by_itself(self) -> tuple[float, float]:
        return self.alone

    def cost(self, drafts: int) -> float:
        return STEP + 0.0005 * drafts


def _next_in(policy: RejectionPolicy) -> float:
    assert policy.next_in is not None
    return policy.next_in


def _plan(
    right: float,
    link: float,
    draft: float,
    rate: float,
    next_draft_ready: float = 0.0,
    may: bool = True,
    shared: bool = False,
) -> RejectionPolicy:
    chances = [1.0, *accumulate([right] * (MOST + 1), mul)]
    costs = cast(LatencyModel, CostsByLink(link, draft, shared))
    return best_rejection_policy(costs, chances, rate, next_draft_ready, may_self_continue=may)


@pytest.mark.parametrize(
    ("right", "link", "draft", "self_continue"),
    [
        (0.9, 0.002, 0.004, False),  # a good draft arrives soon
        (0.9, 0.05, 0.004, True),  # the draft arrives two steps later
        (0.9, 0.002, 0.04, True),  # drafting takes longer than a step
        (0.5, 0.002, 0.004, False),
        (0.5, 0.015, 0.004, True),  # the draft is not worth half a step
    ],
)
def test_verifier_self_continues_where_that_gains_more_than_waiting(
    right: float, link: float, draft: float, self_continue: bool
) -> None:
    rate = max(40.0, (1.0 + right) / (STEP + link + draft))
    assert _plan(right, link, draft, rate).self_continue == self_continue
    assert not _plan(right, link, draft, rate, may=False).self_continue


@given(right=st.floats(0.0, 1.0), link=st.floats(0.0, 0.1), draft=st.floats(1e-4, 0.04), rate=st.floats(1.0, 300.0))
def test_waiting_verifier_waits_for_the_draft_length_of_the_greatest_value(
    right: float, link: float, draft: float, rate: float
) -> None:
    """The tokens count 8 % more, because self-continuation must gain more than a trifle."""
    chances = [1.0, *accumulate([right] * MOST, mul)]

    def worth(drafts: float) -> float:
        return 1.08 * sum(chances[: round(drafts) + 1]) - rate * (drafts * draft + 0.0005 * drafts)

    found = _plan(right, link, draft, rate, may=False)
    assert worth((_next_in(found) - link) / draft) == pytest.approx(max(map(worth, range(1, MOST + 1))), abs=1e-9)


def test_a_verifier_with_a_head_waits_less_and_one_whose_head_is_slow_waits() -> None:
    """Without a head, this verifier waits for a good draft that arrives soon."""

    def policy(step: float, own: float) -> RejectionPolicy:
        costs = CostsByLink(0.002, 0.004)
        costs.alone = step, own
        chances = [1.0, *accumulate([0.9] * (MOST + 1), mul)]
        return best_rejection_policy(cast(LatencyModel, costs), chances, 60.0, 0.0)

    assert not policy(STEP, 1.0).self_continue
    assert policy(STEP, 4.0).self_continue
    assert not policy(6 * STEP, 4.0).self_continue


def test_shared_passes_self_continue_but_announce_the_draft() -> None:
    """Shared passes take place in any case, so leaving them out gains nothing."""
    assert not _plan(0.9, 0.002, 0.004, 100.0).self_continue
    assert _plan(0.9, 0.002, 0.004, 100.0, shared=True).self_continue
    soon = _plan(0.9, 0.002, 0.004, 100.0, next_draft_ready=0.99, shared=True)
    assert soon.self_continue and _next_in(soon) < 0.005


def test_a_fixed_length_ends_before_a_token_that_nothing_proposes() -> None:
    """A drafter without a token proposes one of confidence 0."""
    path = [TreeNode(5, confidence, None) for confidence in (0.9, 0.4, 0.0, 0.8)]
    fixed, chances = DraftLength(8, 16), [1.0, 0.9, 0.4, 0.0, 0.0]
    assert fixed.to_send(path, chances, 0) == 2
    assert fixed.to_send(path, chances, 3) == 4, "what stands before `since` is committed by then"
    assert DraftLength(1, 16).to_send(path, chances, 0) == 1
