"""Finds a policy by its name, or by where it is: `module:Class`."""

from collections.abc import Callable
from importlib import import_module

from specpair.balancing.policies import INFORMED, POLICIES, Policy

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
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"no policy {name!r}: choose one of {', '.join(KNOWN)}, or your own as module:Class")
    try:
        found = getattr(import_module(module), attribute, None)
    except Exception as error:  # of any type: it is the code of others
        raise ValueError(
            f"{module} of the policy {name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if found is None:
        raise ValueError(f"{module} has no {attribute}, which the policy {name} names")
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise ValueError(f"{name} is no policy: a class that inherits from {Policy.__module__}.Policy is needed")
    return found


def check_policy(name: str) -> None:
    """Make the policy `name` once. Raises ValueError, which says what is wrong."""
    make = policy_of(name)
    try:
        make()
    except Exception as error:
        raise ValueError(f"the policy {name} cannot be made: {type(error).__name__}: {error}") from error
