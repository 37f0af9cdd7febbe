"""What no drafter that takes its time can beat: a bound for any policy with chains, and for any with trees.

Two moments count for each token of a text. The verifier has it when the pass is over that commits it: that pass began
when the verifier had the token before, or else when a draft had arrived that holds all tokens from there to the one
before. The drafter has it when it has heard of it; or, where it can be drafted, when it had all tokens before it and a
draft step after that was over, or at once where it is looked up. A step drafts behind a place only if the draft tree
holds the text up to that place, however many places it drafts behind. So no policy has a token earlier than the
earliest moments that follow from those of the token before. Every pass is taken to be as short as the shortest.

A chain holds one token for each place. Behind a token that is not the one in the chain a draft may be prepared, but it
leaves when the token is known.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from lab.simulator.known_outputs.static_policies import MeasuredLatencies
from specpair.speculation.policy.draft_length import MAX_AUTO


class Place(NamedTuple):
    """What the drafter could have at one place of the text, when it has all before it.

    `drafted`: whether a draft could hold the target's token there before it is known.
    `prepared`: whether the drafter could have the token before it is known, and draft behind it.
    `free`: whether it needs no draft step for it.
    """

    drafted: bool
    prepared: bool
    free: bool


def least_seconds(places: Iterable[Place], times: MeasuredLatencies) -> float:
    """Seconds behind the first token, which no policy can beat. `places`: of the tokens behind the first."""
    shortest, delay = min(map(times.verify, range(4 * MAX_AUTO + 1))), (times.rtt + times.overhead) / 2
    verifier, drafter = -delay, 0.0  # when each has the latest token
    leaves = -inf  # when a draft could leave at the earliest that holds the tokens behind the latest token
    for place in places:
        verifier = shortest + min(verifier, max(drafter, leaves) + delay)
        if not place.drafted:
            leaves = verifier + delay
        drafter = (
            verifier + delay if not place.prepared else min(verifier + delay, drafter + (not place.free) * times.draft)
        )
    return verifier + delay
