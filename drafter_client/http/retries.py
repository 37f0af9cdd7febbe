"""Every rule by which a request to the verifier is repeated: after which error, after which pause, for how long.

    error                                   pause before the next attempt        limit
    --------------------------------------  -----------------------------------  --------------------------------------
    broken connection, no connection        0.1 s, doubled every time            7 attempts; where an outage is waited
                                                                                 for next, 4 attempts or 1 s; of
                                                                                 several verifiers 2 attempts
    no connection ever made                 -                                    not repeated
    overloaded, or a limit of the key       what the verifier asks for           60 s; not repeated if it asks for none
    outage (`is_outage`): verifier away     0.25 s between health checks         `PATIENCE`, 300 s, or the user's, who
                                                                                 may give less before a text begins
      verifier ready, and it fails again    1 s, doubled every time, at most 5   6 failures in a row, or the patience
      overloaded, or a limit of the key     what it asks for, or 1 s             the patience; 60 s for a text not begun
      engine error, and verifier ready      -                                    not repeated
    broken connection before a text's       none                                 once, then it is an outage
      first token
    verifier loading, before any text       0.25 s between health checks         900 s
    anything else, a timeout included       -                                    not repeated

At its limit the last error is raised; after the wait for a model that loads, an error that says so. The rules of each
request, one within the other:

    `/verify`                                  broken connection, overloaded
    `/prefill`, release, session event stream  broken connection
    `/model`, `/vocabulary`, `/tokenize`       broken connection, overloaded, outage
    `/health`                                  broken connection; in an outage none
    `/generate`                                none of its own
    a text as a whole (`resuming`)             broken connection before its first token, outage

All these requests are safe to repeat: the client makes the session's id, and a request names the position that it is
for. `repeat` runs the first two rules, `outages` waits through an outage, `health` for a model that loads.
"""

from collections.abc import Callable
from itertools import count
from typing import TypeVar

from drafter_client.errors import ConnectionLost, OtherModel, VerifierTimeout, VerifierUnreachable
from specpair.protocol import errors

PATIENCE = 300.0  # seconds to wait through an outage
LOADING_PATIENCE = 900.0  # seconds to wait for a model that loads
_OVERLOAD_PATIENCE = 60.0  # seconds to wait for an overloaded verifier
_ATTEMPTS, FIRST_PAUSE = 7, 0.1  # over a broken connection: about 6 s are bridged
_FEW_ATTEMPTS, _BRIDGED = 4, 1.0  # attempts, and seconds, before an outage is waited for: a silent link fails slowly
CHECK_PAUSE = 0.25  # seconds between health checks
LONGEST_PAUSE = 5.0  # seconds between attempts with a verifier that is ready and fails again and again
_MOST_FAILURES = 6  # failures in a row of a verifier that is ready: about 20 s
REFUSED_FOR_NOW = (errors.Overloaded, errors.RateLimited)  # the verifier is there, and says when to ask again
# In the middle of a text, a session conflict means that an old request arrived late, as after a broken link; a position
# beyond the committed tokens, that a router has led the text back to a verifier that it had left.
_LEFT_BEHIND = (errors.UnknownSession, errors.SessionConflict, errors.PositionBeyondCommitted)
SILENT = (ConnectionLost, VerifierUnreachable, VerifierTimeout)
_GONE = (errors.BadGateway, errors.ModelLoading, errors.ShuttingDown)
_AWAY = (*_GONE, *SILENT, OtherModel, *_LEFT_BEHIND, *REFUSED_FOR_NOW)

Pause = float | None  # seconds until the next attempt; None: give up
T = TypeVar("T")


def repeat(
    request: Callable[[], T],
    pause_after: Callable[[Exception, int, float], Pause],
    sleep: Callable[[float], object],
    clock: Callable[[], float],
) -> T:
    """Return the result of `request`, repeated as `pause_after(error, attempts, seconds)` decides. Raises the last
    error.

    `attempts`: how many attempts have been made. `seconds`: how many have passed since the first attempt began.
    """
    began = clock()
    for attempts in count(1):
        try:
            return request()
        except Exception as error:
            pause = pause_after(error, attempts, clock() - began)
            if pause is None:
                raise
        sleep(pause)
    raise AssertionError("unreachable: an attempt returns or raises in the end")


def after_broken_connection(
    error: Exception, attempts: int, seconds: float, *, outage_follows: bool, others: bool
) -> Pause:
    """The pause after a failed attempt, if `error` is a broken connection; the first arguments are those in `repeat`.

    `outage_follows`: whether an outage is waited for afterwards.
    `others`: whether other verifiers may go on.
    """
    most = 2 if others else _FEW_ATTEMPTS if outage_follows else _ATTEMPTS
    broken = isinstance(error, (ConnectionLost, VerifierUnreachable))
    if not broken or attempts >= most or (outage_follows and seconds > _BRIDGED):
        return None
    return FIRST_PAUSE * 2.0 ** (attempts - 1)


def after_overload(error: Exception, attempts: int, seconds: float) -> Pause:
    """The pause after a failed attempt, if `error` is an overload or a limit of the key; the arguments are those in
    `repeat`.

    It does not grow with the attempts: the verifier knows best when it has room.
    """
    pause: Pause = error.details.get("retry_after") if isinstance(error, REFUSED_FOR_NOW) else None
    return None if pause is None or seconds + pause > _OVERLOAD_PATIENCE else pause


def is_outage(error: Exception) -> bool:
    """Whether the verifier may be back soon after this error, so that the text can continue.

    A server error that the protocol does not know comes from a proxy, too. A verifier reports
    `EngineError` also while it shuts down; its health tells whether it does.
    """
    return isinstance(error, (*_AWAY, errors.EngineError)) or type(error) is errors.ServerError


def moves_on(error: Exception) -> bool:
    return is_outage(error) and not isinstance(error, (*_LEFT_BEHIND, errors.RateLimited))


def asked_pause(error: Exception) -> float | None:
    """Seconds that a verifier that is there asks to wait, or 1 if it does not say; None: `error` is no such refusal."""
    return float(error.details.get("retry_after", 1)) if isinstance(error, REFUSED_FOR_NOW) else None


def growing_pause(failures: int) -> float:
    """The pause after `failures` requests in a row failed at a verifier that was found ready."""
    return min(CHECK_PAUSE * 2.0**failures, LONGEST_PAUSE)


def outage_patience(patience: float, error: Exception, begun: bool) -> float:
    """Seconds to wait through an outage: `patience`, but less if a verifier that is there refuses a text that is not
    begun."""
    return min(patience, _OVERLOAD_PATIENCE) if isinstance(error, REFUSED_FOR_NOW) and not begun else patience


def before_health_check(error: Exception, failures: int, seconds: float, patience: float) -> Pause:
    """The pause after `error` in an outage that has lasted `seconds`, and may last `patience` seconds. It is left out
    when the verifier went away for the first time.

    `failures`: how many requests in a row failed although a health check had found the verifier ready.
    """
    asked = asked_pause(error)
    if asked is not None:
        return None if seconds + asked > patience else asked
    return None if failures > _MOST_FAILURES else growing_pause(failures + 1)
