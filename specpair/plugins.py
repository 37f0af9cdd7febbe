"""Backends and drafters of other distributions, which pip installs beside this one and which declare entry points."""

from importlib.metadata import entry_points
from typing import Any, NamedTuple

BACKENDS = "specpair.backends"  # a function load(options, progress) -> Backend, as the modules of `backends` have it
DRAFTERS = "specpair.drafters"  # a function make(vocabulary, sampling) -> Drafter, as `drafter_client.Custom` takes it


class BadPlugin(Exception):
    """A plug-in breaks what its group of entry points asks for. The message names its distribution."""


class Plugin(NamedTuple):
    """What an entry point refers to. `what`: its name and its distribution, for messages."""

    what: str
    function: Any

    def called(self, *arguments: Any, expected: type[Exception]) -> Any:
        """The result of the function. Raises errors of the type `expected` as they are, and BadPlugin for any other."""
        try:
            return self.function(*arguments)
        except expected:
            raise
        except Exception as error:
            raise BadPlugin(f"{self.what} failed: {_said(error)}") from error


def names(group: str) -> list[str]:
    """The names of the entry points in a group. Reads the metadata of all installed distributions: milliseconds."""
    return sorted(entry_points(group=group).names)


def find(group: str, name: str) -> Plugin | None:
    """The plug-in `name` of a group, imported; None: there is none. Raises BadPlugin."""
    found = list(entry_points(group=group, name=name))
    if not found:
        return None
    sources = [f"{each.dist.name} {each.dist.version}" for each in found if each.dist is not None]
    if len(found) > 1:
        raise BadPlugin(f"{name} is in several distributions, {', '.join(sources)}: uninstall all but one")
    what = f"{name} of {', '.join(sources)}"
    try:
        function = found[0].load()
    except Exception as error:  # of any type: it is the code of others
        raise BadPlugin(f"{what} cannot be imported: {_said(error)}") from error
    if not callable(function):
        raise BadPlugin(f"{what}: {found[0].value} is no function")
    return Plugin(what, function)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
