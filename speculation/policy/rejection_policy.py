"""What the verifier should do behind a miss, until the next guess is there: go on by itself, wait, or first one, then
the other.

The drafter hears of the miss half a round trip later and has to draft anew. A plan is how many steps the verifier takes
by itself meanwhile and for how many drafts it waits then. It is worth the tokens that it brings up to the next miss,
less the time that it takes at the best rate. Drafts that are made while the verifier goes on are of use only if they
foresaw what its steps say; the wait is lost if they did not.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from speculation.policy.timing import LatencyModel

NOT_SOON = 1e6  # ms; says: do not wait for us
# Share of the tokens: steps of the verifier's own that bring no more than that are not worth it, since now and then one
# begins just before a draft lands.
_TRIFLE = 0.08
_STATED = 0.4  # of a step: stated at most, safely below the half that the verifier counts as soon by its own estimate
_LONGEST = 0.8  # of a step: that the verifier then waits, safely below what is stated and half a step
_INSTANT = 1e-3  # ms


class RejectionPolicy(NamedTuple):
    """What the verifier is told."""

    goes_on: bool  # whether it may take steps of its own
    next_in: float  # ms from the miss until the guess that it should wait for: NOT_SOON for none


def best_rejection_policy(
    times: LatencyModel, chances: Sequence[float], rate: float, next_draft_ready: float, *, may_go_on: bool = True
) -> RejectionPolicy:
    """The best plan. `chances[k]`: that the first k drafts stand, for one k more than a guess has at most.

    `rate`: tokens per millisecond, the best. `next_draft_ready`: share of misses behind which drafts are ready at once.
    """
    most = len(chances) - 2
    draft, step = max(_INSTANT, (1.0 - next_draft_ready) * times.draft()), times.cost(0)
    costs = [rate * times.cost(k) for k in range(most + 1)]
    there = [times.link + k * draft for k in range(most + 1)]
    tokens = [0.0, *accumulate(chances)]
    waiting = ((1.0 + _TRIFLE) * tokens[k + 1] - rate * there[k] - costs[k] for k in range(1, most + 1))
    best, drafts = max((value, k) for k, value in enumerate(waiting, 1))
    found = RejectionPolicy(False, there[drafts])
    if not may_go_on:
        return found
    if times.is_shared:  # passes go on in any case
        best, found = -inf, RejectionPolicy(True, NOT_SOON)
    alone = 0.0
    for steps in range(0 if times.is_shared else 1, most + 1):
        over = steps * step
        if steps:
            alone += chances[steps - 1] * (1.0 - costs[0])
            if alone > best:
                best, found = alone, RejectionPolicy(True, NOT_SOON)
        for k in range(steps + 1, most + 1):
            wait = 0.0 if there[k] + times.margin <= over else max(_INSTANT, there[k] - over)
            if wait > _LONGEST * step:
                break
            value = alone - rate * wait + tokens[k + 1] - tokens[steps] - chances[steps] * costs[k - steps]
            if value > best:
                best, found = value, RejectionPolicy(True, over + min(wait, _STATED * step) if wait else NOT_SOON)
    return found
