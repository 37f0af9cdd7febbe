"""How long a guess should be: tokens per second, not acceptance, decide.

A cycle of a guess of k drafts brings on average 1 + s_1 + … + s_k tokens, s_i being the chance that the first i drafts
stand. Tokens per second over all cycles are greatest when every cycle maximises (tokens - rate x time), with `rate`
the best rate itself (Dinkelbach's rule for ratios). So one more draft pays exactly when

    chance that it stands  >  rate x (time that it keeps the verifier waiting + time its verification adds),

and that is decided token by token, from the drafter's own confidence, corrected by how often drafts of such
confidence stood before. While the verifier is at work anyway, drafts keep nobody waiting.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from speculation.policy.rejection_policy import NOT_SOON, RejectionPolicy, best_rejection_policy
from speculation.policy.schedule import Mechanisms
from speculation.policy.timing import LatencyModel

TRIFLE = 0.08  # of the rate: what overlap could bring at best that is not worth its power, nor, where both ends are one
# machine, the time that it takes from the verifier
MAX_AUTO = 16  # drafts; a longer guess hardly ever stands whole, and stands in the way of other sessions


@dataclass(frozen=True, slots=True)
class Prospects:
    """What is in reach under the present estimates."""

    rate: float  # tokens per millisecond, the best
    price: float  # tokens that a millisecond of the verifier's time is worth
    length: int  # drafts a guess at which it is reached
    unhurried: int  # the same if drafts took no time
    alongside: bool  # whether drafts bring more than a trifle that come while the verifier goes on by itself
    rejection_policy: RejectionPolicy  # what the verifier should do behind a miss
    overlap: bool  # whether to draft while the verifier is at work brings more than a trifle


def prospects(
    times: LatencyModel, chances: Sequence[float], mechanisms: Mechanisms, next_draft_ready: float
) -> Prospects:
    """Weigh every length. `chances[k]`: that the first k drafts stand, for k up to MAX_AUTO + 1, `chances[0]` being 1.

    `next_draft_ready`: share of misses behind which drafts are ready at once.
    """
    draft, link = times.draft(), times.link
    best = unhurried = (0.0, 0)
    tokens = in_turn = unbroken = 0.0
    for k in range(MAX_AUTO + 1):
        tokens += chances[k]
        busy = times.cost(k) + times.queue
        in_turn, unbroken = max(in_turn, tokens / (busy + link + k * draft)), max(unbroken, tokens / busy)
        if mechanisms.overlap:
            stands = chances[k + 1]  # all of it, and the free token behind it was foreseen: the next guess is there
            busy += (1.0 - stands) * (link + (1.0 - next_draft_ready) * k * draft)
            waiting = (k + 1) * draft - times.verify(k)  # for a drafter that does not keep up
            if mechanisms.in_flight == 1:
                waiting = max(waiting, link)
            cycle = busy + stands * max(0.0, waiting)
        else:
            busy += link
            cycle = busy + k * draft
        best = max(best, (tokens / cycle, k))
        unhurried = max(unhurried, (tokens / busy, k))
    rate, length = best
    if mechanisms.self_continue:
        rate = max(rate, 1.0 / times.cost(0))
    overlap = mechanisms.overlap and (not times.draft_known or unbroken > (1.0 + TRIFLE) * in_turn)
    # While one of many waits for its drafts, a pass goes on with the others: only the pass itself takes their time.
    price = max(rate, unbroken) if times.is_shared else rate
    # Behind the token of a step that the verifier takes in any case.
    alongside = mechanisms.self_continue and worths(times, chances, 1, MAX_AUTO, price)[-1] > TRIFLE
    if length:
        behind_miss = best_rejection_policy(times, chances, rate, next_draft_ready, may_go_on=mechanisms.self_continue)
    else:
        behind_miss = RejectionPolicy(mechanisms.self_continue, NOT_SOON)
    return Prospects(rate, price, length, unhurried[1], alongside, behind_miss, overlap)


def worths(times: LatencyModel, chances: Sequence[float], since: int, most: int, price: float) -> list[float]:
    """What a guess is worth of whose fresh drafts the best 0, 1, 2, … are sent, in tokens beyond a pass without any."""
    return list(accumulate(_worths(times, chances, since, most, price), max))


def worth_sending(times: LatencyModel, chances: Sequence[float], since: int, most: int, price: float) -> int:
    """How many drafts of a path to send."""
    each = _worths(times, chances, since, most, price)
    return since + each.index(max(each))


def _worths(times: LatencyModel, chances: Sequence[float], since: int, most: int, price: float) -> list[float]:
    """The same with exactly 0, 1, 2, … fresh drafts.

    `chances[k]`: that the first k drafts of the path stand; from `since` on they would be judged.
    """
    given, plain = price * chances[min(since, len(chances) - 1)], times.cost(0)
    gain, each = 0.0, [0.0]
    for drafts in range(1, min(len(chances) - 1 - since, most) + 1):
        gain += chances[since + drafts]
        each.append(gain - given * (times.cost(drafts) - plain))
    return each
