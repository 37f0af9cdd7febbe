"""Successive halving with common random numbers (Karnin, Koren and Somekh, Almost Optimal Exploration in Multi-Armed
Bandits, ICML 2013), with a test before a candidate is dropped.

All candidates run the same few replications, under the same load and chance. Then, in each round:

1. Candidates are ranked by how many of the others dominate them.
2. One of the worse half is dropped if one that is ranked before it surely dominates it: in no objective does the 95 %
   interval of the paired difference leave room for the opposite. A candidate that is within chance of the better ones
   stays, so a round may drop fewer than half, or none.
3. Those that are left run as many replications again.

It ends when one candidate is left, at `most` replications, or where the next round would exceed the budget.
"""

from collections.abc import Callable, Sequence

from lab.simulator.search.evaluation import EvaluateAll
from lab.simulator.search.outcomes import Goals, Outcome, ranked, surely_dominates
from lab.simulator.search.space import BadSearch

Told = Callable[[str], object]


def check_budget(candidates: int, first: int, most: int, budget: int | None) -> None:
    """Raise BadSearch for numbers that leave no room for a search.

    `first`: replications of each candidate in the first round. `most`: of a candidate that is never dropped.
    `budget`: replications of all together; None: no limit.
    """
    if not 2 <= first <= most:
        raise BadSearch(f"first is {first} and most {most}: both are at least 2, and first is at most most")
    if budget is not None and candidates * first > budget:
        raise BadSearch(
            f"the budget is {budget} replications, but {candidates} candidates with {first} each take "
            f"{candidates * first}: raise the budget, or vary less"
        )


def halve(
    outcomes: Sequence[Outcome],
    goals: Goals,
    evaluate: EvaluateAll,
    first: int,
    most: int,
    budget: int | None = None,
    told: Told = lambda line: None,
) -> None:
    """Let candidates have replications, and drop the worse ones. For the numbers, and BadSearch, see `check_budget`."""
    check_budget(len(outcomes), first, most, budget)
    left, wanted, spent, round_ = outcomes, first, 0, 1
    while True:
        told(f"round {round_}: {len(left)} candidates, {wanted} replications each")
        spent += run(left, wanted, evaluate)
        if wanted == most or len(left) == 1:
            return
        left = _left(left, goals, round_)
        more = min(2 * wanted, most)
        if len(left) == 1 or (budget is not None and spent + len(left) * (more - wanted) > budget):
            return
        wanted, round_ = more, round_ + 1


def run(outcomes: Sequence[Outcome], wanted: int, evaluate: EvaluateAll) -> int:
    """Let candidates have `wanted` replications. Returns how many were run.

    All have one before any has the next, so if it ends early, what came of them by then can be compared.
    """
    missing = [(each, n) for n in range(wanted) for each in outcomes if n >= len(each.replications)]
    asked = [(each.candidate.configuration, n) for each, n in missing]
    for (outcome, _), values in zip(missing, evaluate(asked), strict=True):
        outcome.replications.append(values)
    return len(asked)


def _left(outcomes: Sequence[Outcome], goals: Goals, round_: int) -> list[Outcome]:
    order = ranked(outcomes, goals)
    for place in range((len(order) + 1) // 2, len(order)):
        each = order[place]
        by = next((other for other in order[:place] if surely_dominates(other, each, goals)), None)
        if by is not None:
            each.dropped = by, round_
    return [each for each in outcomes if each.dropped is None]
