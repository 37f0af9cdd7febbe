"""The batching window: whether a forward pass waits a little for verify requests that are about to arrive.

An engine that starts a pass as soon as any request is ready falls into convoys. Of clients that draft for equally long,
the first gets a pass of its own, the others arrive while it runs, and from then on two groups alternate, each in passes
half as full as they could be. A short wait keeps the group together.
"""

from collections.abc import Iterable

LONGEST = 0.1  # the longest window, as a multiple of the estimated time of the pass


def window_until(now: float, last: float, pass_time: float, ready: int, expected: Iterable[float]) -> float | None:
    """The time, at most `last`, until which waiting saves most; None: start the pass now. Times in seconds.

    `pass_time`: the estimated time of the pass. `ready`: how many sessions wait for it. `expected`: the times by which
    other sessions should have sent a request; past ones are ignored. Waiting for the first j of these saves each of the
    j sessions the rest of a pass that it would otherwise wait for, and costs each ready session the wait.
    """
    best, until = 0.0, None
    for count, moment in enumerate(sorted(moment for moment in expected if now < moment <= last), 1):
        wait = moment - now
        gain = count * (pass_time - wait) - ready * wait
        if gain > best:
            best, until = gain, moment
    return until
