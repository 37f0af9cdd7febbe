"""Decide whether the next verify request should wait for further draft tokens, and for how many.

A draft token gains its chance of acceptance, less the cost of verifying it. Waiting for it costs the tokens that the
verifier would have produced meanwhile.
"""

from collections.abc import Sequence
from typing import NamedTuple

from speculation.policy.draft_length import Prospects, worths
from speculation.policy.timing import LatencyModel
from speculation.policy.verifier_timeline import PassStart


class DraftPlan(NamedTuple):
    """What to put into the next verify request."""

    more: int  # draft tokens to wait for before it is sent
    skip: int  # draft tokens of the path that, if accepted, are committed before the verifier pass for it starts


def best_plan(
    starts: Sequence[PassStart],
    chances: Sequence[float],
    made: int,
    known: int,
    cap: int,
    waited_for: bool,
    latencies: LatencyModel,
    prospects: Prospects,
) -> DraftPlan | None:
    """The best plan; None where no draft pays.

    `starts[n]`: when the verifier pass would start for a request that leaves with n draft tokens more than the `made`
    ones of the path. `chances[k]`: chance that the first k draft tokens of the path are accepted. `known`: tokens of
    the committed text. `cap`: most draft tokens judged at once. `waited_for`: the verifier idles until a draft comes.
    """
    # Share of its gain that a draft token loses if it is left out of this request. It goes into the next one, unless
    # that is full without it.
    loss = 1.0
    if prospects.overlap:
        loss = min(1.0, latencies.verify(0) / (latencies.draft() * max(1, prospects.unhurried)))
    best: DraftPlan | None = None
    best_value, at_once = 0.0, None
    worth: dict[int, list[float]] = {}
    for more, start in enumerate(starts):
        skip = start.position - known
        fresh = made + more - skip
        if more and (fresh > cap or (best_value > 0.0 and start.position > starts[0].position)):
            break
        if fresh < 0 or (not fresh and not waited_for):
            continue
        if skip not in worth:
            worth[skip] = worths(latencies, chances, skip, cap, prospects.price)
        gain = worth[skip][min(fresh, cap)]  # draft tokens beyond `cap` are not sent
        at_once = gain if at_once is None else at_once
        waiting = prospects.rate * (start.at - starts[0].at) - (start.position - starts[0].position)
        given = chances[min(starts[0].position - known, made)]
        value = at_once + loss * (gain - at_once) - given * waiting
        if value > best_value or (best is None and waited_for):
            best, best_value = DraftPlan(more, skip), value
    return best


def fixed_plan(skip: int, made: int, ahead: int, cap: int, room: int, waited_for: bool) -> DraftPlan | None:
    """The plan for a fixed draft length: `cap` draft tokens, or as many as there is `room` for; None: no request.

    `skip`: as in `DraftPlan`. `ahead`: most draft tokens that can be waited for. The others are as for `best_plan`.
    """
    missing = min(cap, room - skip) - (made - skip)
    if cap and missing > 0 and ahead > 0:
        return DraftPlan(min(missing, ahead), skip)
    if made < skip or (made == skip and not waited_for):
        return None
    return DraftPlan(0, skip)
