"""The draft length agrees with an exhaustive calculation over all lengths and all outcomes of a round."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpair.speculation.policy.draft_length import MAX_AUTO, prospects, worth_sending
from specpair.speculation.policy.schedule import LOCKSTEP, NOT_SOON, Mechanisms
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

    def draft(self) -> float:
        return self.draft_time

    def verify(self, drafts: int) -> float:
        return self.passes[drafts]

    def cost(self, drafts: int) -> float:
        return self.passes[drafts]


def _costs(draft_time: float, link: float, step: float, wider: float) -> Costs:
    return Costs(draft_time, link, tuple(step + wider * drafts for drafts in range(MAX_AUTO + 2)))


def _chances(each: Sequence[float]) -> list[float]:
    return [1.0, *accumulate(each, mul)]


def _steady(acceptance: float) -> list[float]:
    return _chances([acceptance] * (MAX_AUTO + 1))


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


@examples(60)
@given(costs=COSTS, chances=CHANCES)
def test_drafter_without_cost_drafts_no_less_in_lockstep(costs: Costs, chances: list[float]) -> None:
    found = prospects(costs, chances, LOCKSTEP, 0.0)  # type: ignore[arg-type]
    costless = prospects(replace(costs, draft_time=0.0), chances, LOCKSTEP, 0.0)  # type: ignore[arg-type]
    assert found.unhurried == costless.length >= found.length


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


def test_certain_tokens_are_all_sent_and_hopeless_ones_never() -> None:
    costs = _costs(1.0, 20.0, 50.0, 1.0)
    assert worth_sending(costs, _steady(1.0), 0, 12, 0.02) == 12  # type: ignore[arg-type]
    assert worth_sending(costs, _steady(1.0), 3, 12, 0.02) == 15  # type: ignore[arg-type]
    assert worth_sending(costs, _steady(0.0), 0, 12, 0.02) == 0  # type: ignore[arg-type]
    assert worth_sending(costs, _steady(0.01), 2, 12, 0.02) == 2  # type: ignore[arg-type]


def test_length_does_not_stop_where_the_next_token_is_free() -> None:
    """Passes take two tokens at a time: the second draft token alone does not pay, but the third is free with it."""
    costs = Costs(0.0, 0.0, (50.0, 50.0, 80.0, 80.0, 110.0, 110.0, *[200.0] * 12))
    chances = _steady(0.6)
    assert chances[2] < 0.02 * 30.0 < chances[2] + chances[3] + 0.1
    assert worth_sending(costs, chances, 0, 16, 0.015) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("mechanisms", [LOCKSTEP, OVERLAPPED, PIPELINED, Mechanisms()])
def test_useless_drafter_is_not_used_and_the_rate_is_that_of_plain_decoding(mechanisms: Mechanisms) -> None:
    costs = _costs(2.0, 20.0, 50.0, 1.0)
    useless, good = (prospects(costs, _steady(each), mechanisms, 0.0) for each in (0.0, 0.9))  # type: ignore[arg-type]
    assert useless.length == 0
    assert useless.rate == pytest.approx(1.0 / 50.0 if mechanisms.self_continue else 1.0 / 70.0)
    assert good.rate > 2 * useless.rate and good.length >= 4


def test_drafts_beside_self_continuation_pay_if_sometimes_accepted() -> None:
    """They pay also where no draft is worth waiting for. Drafting takes power, so a trifle is not enough."""
    costs = _costs(20.0, 100.0, 25.0, 0.5)
    found = [prospects(costs, _steady(each), Mechanisms(), 0.0) for each in (0.1, 0.2, 0.4, 0.8)]  # type: ignore[arg-type]
    assert [each.alongside for each in found] == [False, False, True, True]
    assert found[2].length == 0
    assert not prospects(costs, _steady(0.8), PIPELINED, 0.0).alongside  # type: ignore[arg-type]


def test_self_continuation_is_a_lower_bound_of_the_rate() -> None:
    costs = _costs(2.0, 100.0, 25.0, 1.0)
    waiting = prospects(costs, _steady(0.4), PIPELINED, 0.0)  # type: ignore[arg-type]
    self_continuing = prospects(costs, _steady(0.4), replace(PIPELINED, self_continue=True), 0.0)  # type: ignore[arg-type]
    assert waiting.length == self_continuing.length > 0 and waiting.rate < 1.0 / 25.0
    assert self_continuing.rate == pytest.approx(1.0 / 25.0)


def test_verifier_self_continues_where_no_draft_pays() -> None:
    useless = prospects(_costs(2.0, 2.0, 25.0, 0.5), _steady(0.0), Mechanisms(), 0.0)  # type: ignore[arg-type]
    assert useless.rejection_policy == (True, NOT_SOON)


def test_drafts_ready_after_a_rejection_raise_the_rate() -> None:
    costs = _costs(8.0, 10.0, 50.0, 1.0)
    rates = [prospects(costs, _steady(0.8), PIPELINED, ready).rate for ready in (0.0, 0.5, 1.0)]  # type: ignore[arg-type]
    assert rates == sorted(rates) and rates[2] > 1.1 * rates[0]


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
