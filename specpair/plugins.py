"""Plug-ins: backends and drafters of other distributions, which pip installs beside this one and which declare
entry points, and classes that are named `module:Class`."""

import re
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NamedTuple, TypeVar

BACKENDS = "specpair.backends"  # a function load(options, progress) -> Backend, as the modules of `backends` have it
DRAFTERS = "specpair.drafters"  # a function make(vocabulary, sampling) -> Drafter, as `drafter_client.Custom` takes it


T = TypeVar("T")


class BadPlugin(Exception):
    """A plug-in breaks the contract of its group of entry points. The message names its distribution."""


class Plugin(NamedTuple):
    """The object of an entry point. `what`: its name and its distribution, for messages."""

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


def class_at(name: str, base: type[T]) -> type[T]:
    """The class at `name`, `module:Class`, which inherits from `base`. Imports its module.

    Raises ValueError, which says what is wrong with the name or with what stands there.
    """
    what = re.sub("(?<!^)(?=[A-Z])", " ", base.__name__).lower()
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"no {what} {name!r}: name it as module:Class")
    try:
        found = getattr(import_module(module), attribute, None)
    except Exception as error:  # of any type: it is the code of others
        raise ValueError(f"{module} of the {what} {name} cannot be imported: {_said(error)}") from error
    if found is None:
        raise ValueError(f"{module} has no {attribute}, which the {what} {name} names")
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{name} is no {what}: a class that inherits from {base.__module__}.{base.__name__} is needed")
    return found


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
