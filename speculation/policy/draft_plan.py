"""Whether the next guess should wait for further drafts, and for how many.

A draft that goes with a guess brings its chance to stand, less what its verification costs; to wait for it costs what
the verifier would have done meanwhile.
"""

from collections.abc import Sequence
from typing import NamedTuple

from speculation.policy.draft_length import Prospects, worths
from speculation.policy.timing import LatencyModel
from speculation.policy.verifier_timeline import PassStart


class DraftPlan(NamedTuple):
    """The best that can be done about the next guess."""

    more: int  # drafts to wait for before it is sent
    skip: int  # drafts of the path that will be committed by then, should it stand


def best_plan(
    starts: Sequence[PassStart],
    chances: Sequence[float],
    made: int,
    known: int,
    cap: int,
    waited_for: bool,
    times: LatencyModel,
    prospects: Prospects,
) -> DraftPlan | None:
    """The best; None where no guess pays.

    `starts[n]`: what becomes of a guess that leaves with n drafts more than the `made` ones. `chances[k]`: that the
    first k drafts stand. `known`: tokens of the text. `cap`: drafts that are judged at most. `waited_for`: the verifier
    does nothing until a guess comes.
    """
    # A draft that does not go with this guess goes with the next one, unless that is full without it.
    loss = 1.0
    if prospects.overlap:
        loss = min(1.0, times.verify(0) / (times.draft() * max(1, prospects.unhurried)))
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
            worth[skip] = worths(times, chances, skip, cap, prospects.price)
        gain = worth[skip][min(fresh, cap)]  # of more drafts the rest stays here
        at_once = gain if at_once is None else at_once
        waiting = prospects.rate * (start.at - starts[0].at) - (start.position - starts[0].position)
        given = chances[min(starts[0].position - known, made)]
        value = at_once + loss * (gain - at_once) - given * waiting
        if value > best_value or (best is None and waited_for):
            best, best_value = DraftPlan(more, skip), value
    return best


def fixed_plan(skip: int, made: int, ahead: int, cap: int, room: int, waited_for: bool) -> DraftPlan | None:
    """The same where guesses have `cap` drafts, or what there is `room` for. `ahead`: drafts that can be waited for."""
    missing = min(cap, room - skip) - (made - skip)
    if cap and missing > 0 and ahead > 0:
        return DraftPlan(min(missing, ahead), skip)
    if made < skip or (made == skip and not waited_for):
        return None
    return DraftPlan(0, skip)
