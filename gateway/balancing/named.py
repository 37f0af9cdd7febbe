"""Finds a policy by its name, or by where it is: `module:Class`."""

from collections.abc import Callable

from gateway.balancing.policies import INFORMED, POLICIES, Policy
from specpair.plugins import class_at

KNOWN = {**POLICIES, **INFORMED}
DEFAULT = "wjsq"  # of a router that is told no policy
LOOK_EVERY = 1.0  # seconds between two looks of such a router at each node


def policy_of(name: str) -> Callable[[], Policy]:
    """What makes the policy `name`. Imports the module of one that is none of `KNOWN`.

    Raises ValueError, which says what is wrong with the name or with what stands there.
    """
    known = KNOWN.get(name)
    if known is not None:
        return known
    if ":" not in name:
        raise ValueError(f"no policy {name!r}: choose one of {', '.join(KNOWN)}, or your own as module:Class")
    return class_at(name, Policy)  # type: ignore[type-abstract]


def check_policy(name: str) -> None:
    """Make the policy `name` once. Raises ValueError, which says what is wrong."""
    make = policy_of(name)
    try:
        make()
    except Exception as error:
        raise ValueError(f"the policy {name} cannot be made: {type(error).__name__}: {error}") from error
