"""Whether to hold a pass open for guesses that are about to come.

An engine that starts whenever anything is ready falls into convoys: the first client of a group that thinks equally
long gets a pass of its own, the others come while it runs, and from then on two groups take turns, each with passes
half as full as they could be. A short wait keeps the group together.
"""

from collections.abc import Iterable

LONGEST = 0.1  # share of a step


def window_until(now: float, last: float, step: float, ready: int, expected: Iterable[float]) -> float | None:
    """The moment, at most `last`, until which holding a pass gains most; None to start it now. Times in seconds.

    The pass is estimated to take `step`, and `ready` sessions wait for it. `expected`: when others should have come;
    one that is overdue counts no more. To wait until the j-th of them saves each of these j what is left of a step
    they would otherwise sit out, and costs each that is ready the wait.
    """
    best, until = 0.0, None
    for count, moment in enumerate(sorted(moment for moment in expected if now < moment <= last), 1):
        wait = moment - now
        gain = count * (step - wait) - ready * wait
        if gain > best:
            best, until = gain, moment
    return until
