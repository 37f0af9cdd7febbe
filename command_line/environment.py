"""Variables of a program in the environment, told apart from mistakes and from what Kubernetes puts there."""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from command_line.nearest import nearest

# For a service called "verifier", Kubernetes gives every container of its namespace VERIFIER_SERVICE_HOST,
# VERIFIER_PORT=tcp://10.0.0.1:8000, VERIFIER_PORT_8000_TCP_ADDR and more; for one called "verifier-big",
# VERIFIER_BIG_SERVICE_HOST and so on. Docker's links do the same.
_SERVICE = re.compile(r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$")
_ADDRESS = re.compile(r"(tcp|udp|sctp)://", re.IGNORECASE)


class UnknownVariable(Exception):
    """A variable is close to a known one, so it was most likely meant to be that one. The message names both."""


class Variables(NamedTuple):
    """What of an environment is meant for a program."""

    values: dict[str, str]  # by known name, without the prefix
    unknown: list[str]  # whole names that nothing here reads, to be told of in a line each


def variables(prefix: str, known: Collection[str], environment: Mapping[str, str]) -> Variables:
    """The variables that begin with `prefix`. `known`: their names without it, in capitals.

    Raises UnknownVariable for one that is close to a known name. What Kubernetes and Docker set for a service of that
    name is left out without a word.
    """
    found = Variables({}, [])
    for variable, value in environment.items():
        if not variable.startswith(prefix):
            continue
        name = variable[len(prefix) :]
        if _SERVICE.match(name) or (re.match(r"(.+_)?PORT$", name) and _ADDRESS.match(value)):
            continue
        if name in known:
            found.values[name] = value
            continue
        meant = nearest(name, known)
        if meant is not None:
            raise UnknownVariable(f"{variable}: no such variable; did you mean {prefix}{meant}?")
        found.unknown.append(variable)
    return found
