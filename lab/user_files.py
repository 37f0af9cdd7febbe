"""Reads a user's files, text or YAML 1.2, and describes their mistakes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

Complain = Callable[[str], Exception]  # the error that has this message


def text_of(path: Path, complain: Complain, called: str = "") -> str:
    """The text of a file. `called`: the file's name in errors. Raises the error that `complain` makes of the reason."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise complain(f"{called or path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise complain(f"{called or path} is not UTF-8 text") from None


def first_mistake(error: ValidationError) -> str:
    """The position and the message of the first mistake."""
    first = error.errors(include_url=False, include_input=False)[0]
    where, said = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return f"{where}: {said}" if where else said


class Loader(yaml.SafeLoader):  # type: ignore[misc]
    """A loader of YAML 1.2: only true and false are switches, `mode: off` is a text. Refuses duplicate keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        known = set[str]()
        for key, _ in node.value:
            if isinstance(key.value, str) and key.value in known:
                what = f"the key {key.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
            known |= {key.value} if isinstance(key.value, str) else set()
        return super().construct_mapping(node, deep)


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def keys_of(path: Path, complain: Complain, advice: str, called: str = "") -> dict[str, Any]:
    """The keys of a YAML file. `advice`: the remedy for a file without keys. Otherwise as `text_of`."""
    named = called or str(path)
    try:
        given = yaml.load(text_of(path, complain, called), Loader)  # noqa: S506
    except yaml.YAMLError as error:
        raise complain(f"{named} is not YAML: {complaint(error)}") from None
    if not isinstance(given, dict):
        raise complain(f"{named} has no keys: {advice}")
    return given


def complaint(error: yaml.YAMLError) -> str:
    """The error for a text that is not YAML, with its position, on one line."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or problem is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
