"""The batching window: whether a pass waits a little for verify requests that are about to arrive.

An engine that starts a pass as soon as any request is ready falls into convoys. Of clients that draft for equally long,
the first gets a pass of its own, the others arrive while it runs, and from then on two groups alternate, each in passes
half as full as they could be. A short wait keeps the group together.
"""

from collections.abc import Iterable

LONGEST = 0.1  # the longest window, as a share of the pass's time


def window_until(now: float, last: float, step: float, ready: int, expected: Iterable[float]) -> float | None:
    """The time, at most `last`, until which waiting gains most; None: start the pass now. Times in seconds.

    `step`: the estimated time of the pass. `ready`: sessions that wait for it. `expected`: when other sessions should
    have sent a request; overdue ones are ignored. Waiting for the first j of these saves each of the j sessions the
    rest of a pass that it would otherwise wait for, and costs each ready session the wait.
    """
    best, until = 0.0, None
    for count, moment in enumerate(sorted(moment for moment in expected if now < moment <= last), 1):
        wait = moment - now
        gain = count * (step - wait) - ready * wait
        if gain > best:
            best, until = gain, moment
    return until
