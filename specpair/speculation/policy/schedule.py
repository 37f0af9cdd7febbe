"""The mechanisms that drafter and verifier use (`Mechanisms`), and the verifier's policy after a rejection.

After a rejection the verifier self-continues, waits for a draft, or does first one, then the other. The drafter learns
of the rejection half a round trip later and has to draft anew. A policy is a number of self-continuation steps, then a
wait for a draft of some length. Its value is the number of tokens up to the next rejection, less the tokens that the
best rate would bring in the time they take. Tokens drafted while the verifier self-continues are of use only if they
predict the target-decoded tokens; otherwise the wait is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate
from math import inf
from typing import NamedTuple

from specpair.speculation.policy.timing import LatencyModel


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """The mechanisms that the drafter may use. With all off (`LOCKSTEP`), the drafter drafts, sends and waits."""

    overlap: bool = True  # draft while a response is awaited
    in_flight: int = 6  # most verify requests in flight at once
    after_recovered: bool = True  # prepare drafts behind likely recovered tokens
    self_continue: bool = True  # the verifier decodes by itself while it waits for drafts
    same_cores: bool = False  # a draft step takes time from the verifier, whether that waits or not
    trees: bool = False  # send runner-ups, too: a draft is a tree


LOCKSTEP = Mechanisms(overlap=False, in_flight=1, after_recovered=False, self_continue=False)
# Where both ends compute on the same cores: drafting beside a pass would slow both, and in part be thrown away.
IN_TURNS = Mechanisms(overlap=False, in_flight=1, after_recovered=False, same_cores=True)


def mechanisms_of(*, shares_cores: bool, self_continue: bool, may_change_mode: bool) -> Mechanisms:
    """What drafter and verifier use in mode `remote`.

    `shares_cores`: both compute on the same cores.
    `self_continue`: the verifier offers it.
    `may_change_mode`: where drafts do not pay, mode `auto` takes mode `target`. So on shared cores it needs no
        self-continuation, which would run beside a draft step and make that take twice as long.
    """
    if not shares_cores:
        return Mechanisms(self_continue=self_continue)
    return replace(IN_TURNS, self_continue=self_continue and not may_change_mode)


class Schedule(Enum):
    """The way in which drafter and verifier share the time."""

    LOCKSTEP = "lockstep"  # draft, send, wait
    OVERLAPPED = "overlapped"  # drafting goes on while the verifier works
    SELF_CONTINUED = "self-continued"  # no draft pays: the verifier decodes by itself


NOT_SOON = 1e3  # seconds; tells the verifier not to wait for a draft
# Share of the tokens that self-continuation must gain. A smaller gain is not worth it, because a step sometimes begins
# just before a draft arrives.
_TRIFLE = 0.08
# Longest waits as shares of a self-continuation step. The stated one is safely below the half step that the verifier
# waits at most, and the real one safely below the stated one plus half a step.
_STATED, _LONGEST = 0.4, 0.8
_INSTANT = 1e-6  # seconds; least time of a draft step or a wait


class RejectionPolicy(NamedTuple):
    """The verifier's instructions in a verify request for the time after a rejection."""

    self_continue: bool | None = None  # whether it may self-continue from here on; None: as before
    next_in: float | None = None  # seconds until the draft to wait for; NOT_SOON: it should not wait; None: not said


UNSAID = RejectionPolicy()  # of a request that says nothing of the time after it


def best_rejection_policy(
    latencies: LatencyModel,
    chances: Sequence[float],
    rate: float,
    next_draft_ready: float,
    *,
    may_self_continue: bool = True,
) -> RejectionPolicy:
    """The policy of the greatest value, as the module defines it.

    `chances[k]`: chance that the first k draft tokens are accepted, for k up to one more than the longest draft.
    `rate`: the best tokens per second.
    `next_draft_ready`: share of rejections, 0 to 1, after which a draft is ready at once.
    """
    most = len(chances) - 2
    draft, step = max(_INSTANT, (1.0 - next_draft_ready) * latencies.draft()), latencies.cost(0)
    costs = [rate * latencies.cost(k) for k in range(most + 1)]
    arrives = [latencies.link + k * draft for k in range(most + 1)]
    tokens = [0.0, *accumulate(chances)]
    waiting = ((1.0 + _TRIFLE) * tokens[k + 1] - rate * arrives[k] - costs[k] for k in range(1, most + 1))
    best, drafts = max((value, k) for k, value in enumerate(waiting, 1))
    found = RejectionPolicy(False, arrives[drafts])
    if not may_self_continue:
        return found
    if latencies.is_shared:  # the passes of other sessions go on in any case
        best, found = -inf, RejectionPolicy(True, NOT_SOON)
    self_continued, margin, (alone, own) = 0.0, latencies.margin, latencies.by_itself()
    alone = max(step, alone)
    for steps in range(0 if latencies.is_shared else 1, most + 1):
        over = steps * alone
        if steps:
            self_continued += chances[steps - 1] * (own - rate * alone)
            if self_continued > best:
                best, found = self_continued, RejectionPolicy(True, NOT_SOON)
        for k in range(steps + 1, most + 1):
            wait = 0.0 if arrives[k] + margin <= over else max(_INSTANT, arrives[k] - over)
            if wait > _LONGEST * step:
                break
            value = self_continued - rate * wait + tokens[k + 1] - tokens[steps] - chances[steps] * costs[k - steps]
            if value > best:
                best, found = value, RejectionPolicy(True, over + min(wait, _STATED * step) if wait else NOT_SOON)
    return found
