"""Reads a program's environment variables; recognises misspelt names and the variables that Kubernetes sets."""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from specpair.command_line.errors import SettingsError
from specpair.command_line.suggestion import advice

# For a service called "verifier", Kubernetes gives every container of its namespace VERIFIER_SERVICE_HOST,
# VERIFIER_PORT=tcp://10.0.0.1:8000, VERIFIER_PORT_8000_TCP_ADDR and more; for one called "verifier-big",
# VERIFIER_BIG_SERVICE_HOST and so on. Docker's links do the same.
_SERVICE = re.compile(r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$")
_ADDRESS = re.compile(r"(tcp|udp|sctp)://", re.IGNORECASE)


class Variables(NamedTuple):
    """The variables of an environment that begin with a program's prefix."""

    values: dict[str, str]  # by known name, without the prefix
    unknown: list[str]  # whole names of variables that the program does not read, for a warning about each


def variables(prefix: str, known: Collection[str], environment: Mapping[str, str]) -> Variables:
    """The variables that begin with `prefix`.

    `known`: names that the program reads, without the prefix, in capitals.

    Raises SettingsError for a name that is close to a known one, as it is most likely misspelt. Ignores the variables
    that Kubernetes and Docker set for a service of the program's name.
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
        if meant := advice(name, known, shown=prefix.__add__, listed=False):
            raise SettingsError(f"{variable}: no such variable{meant}")
        found.unknown.append(variable)
    return found
