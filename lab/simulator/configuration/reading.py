"""Reads the file, with single keys replaced for one run. Errors name file, line, key and remedy."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.keys import FOLDER, Mistake
from lab.user_files import Loader, complaint, text_of
from specpair.command_line import layers
from specpair.command_line.setting_values import advice

_SET = "--set "  # what the names of values given so begin with


class BadConfiguration(ValueError):
    """A file is no configuration of a simulation. The message names the file, the line and the key."""


def read(path: Path, overrides: Sequence[str] = ()) -> Configuration:
    """The configuration in a file.

    `overrides`: keys that are replaced, each as KEY=VALUE: see `_override`.

    Raises BadConfiguration.
    """
    return parse(text_of(path, BadConfiguration), str(path), path.parent, overrides)


def parse(text: str, name: str, folder: Path, overrides: Sequence[str] = ()) -> Configuration:
    """The configuration in the text of a file.

    `name`: of the file, for errors.
    `folder`: where files lie that relative paths name.
    `overrides`: as for `read`.

    Raises BadConfiguration.
    """
    try:
        node = _node(text, name)
        if isinstance(node, yaml.MappingNode):
            for each in overrides:
                _override(node, each)
        given = None if node is None else Loader("").construct_document(node)
    except yaml.YAMLError as error:
        raise BadConfiguration(f"{name} is not YAML: {complaint(error)}") from None
    if not isinstance(given, dict):
        raise BadConfiguration(f"{name} has no keys: 'specpair simulator init' writes an example")
    try:
        return Configuration.model_validate(given, context={FOLDER: folder})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path, _ = _location(node, first["loc"])
        mark = _location(node, [*first["loc"], *_at_fault(first)])[1]
        line = mark.name if mark.name.startswith(_SET) else f"{name}, line {mark.line + 1}"
        where = f"{line}: " + (f"{path}: " if path else "")
        raise BadConfiguration(where + _complaint(first)) from None


def _node(text: str, name: str) -> Any:
    """The tree of a text, whose marks have this name. Raises YAMLError."""
    loader = Loader(text)
    loader.name = name
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


# Overrides.


def _override(root: yaml.MappingNode, given: str) -> None:
    """Replace a key in the tree of a file, or add it.

    `given`: KEY=VALUE; the key is a path with points, in which an entry of a list is named by its `name`, or by its
        number from 0, behind a point or in brackets; the value is YAML.

    Raises BadConfiguration.
    """
    path, equals, text = given.partition("=")
    parts = parts_of(path)
    if not equals or not all(parts):
        raise BadConfiguration(f"{_SET}{given}: not KEY=VALUE, such as workload.rate_rps=4")
    try:
        value = _node(text, f"{_SET}{given}")
    except yaml.YAMLError as error:
        raise BadConfiguration(f"{_SET}{given}: not YAML: {complaint(error)}") from None
    if value is None:
        raise BadConfiguration(f"{_SET}{given}: has no value: write one, such as null")
    node: Any = root
    for number, part in enumerate(parts):
        new = value if number == len(parts) - 1 else None
        if isinstance(node, yaml.MappingNode):
            there = next((each for known, each in node.value if known.value == part), None)
            if new is not None or there is None:
                new = new or yaml.MappingNode("tag:yaml.org,2002:map", [], value.start_mark)
                name = yaml.ScalarNode("tag:yaml.org,2002:str", part, value.start_mark)
                node.value = [*(pair for pair in node.value if pair[0].value != part), (name, new)]
            node = new or there
        elif isinstance(node, yaml.SequenceNode):
            place = _place_in(node, part, given)
            node.value[place] = new or node.value[place]
            node = node.value[place]
        else:
            raise BadConfiguration(f"{_SET}{given}: {'.'.join(parts[:number])} has no keys")


def parts_of(path: str) -> list[str]:
    """The keys, names and numbers of a path such as `devices.verifiers[big].count`."""
    return re.sub(r"\[([^\[\]]+)\]", r".\1", path.strip()).split(".")


def _place_in(node: yaml.SequenceNode, entry: str, given: str) -> int:
    """The place of an entry of a list, which is named by its `name` or its number."""
    names = [
        next((str(value.value) for key, value in each.value if key.value == "name"), "")
        if isinstance(each, yaml.MappingNode)
        else ""
        for each in node.value
    ]
    if entry.isdecimal() and int(entry) < len(names):
        return int(entry)
    if entry not in names:
        known = [name for name in names if name] or [str(number) for number in range(len(names))]
        raise BadConfiguration(f"{_SET}{given}: no entry {entry!r}{advice(entry, known)}")
    return names.index(entry)


# Mistakes.


def _at_fault(error: ErrorDetails) -> Sequence[str | int]:
    """The path of the wrong key, from the location of the error on."""
    context: Mapping[str, Any] = error.get("ctx", {})
    if error["type"] == layers.UNKNOWN_KEY:
        return [context["key"]]
    complaint = context.get("error")
    return complaint.at if isinstance(complaint, Mistake) else ()


def _location(node: Any, location: Sequence[str | int]) -> tuple[str, Any]:
    """The path of a mistake in the file, and its mark. Parts of `location` that name a form of a value have no place
    there."""
    path, mark = "", node.start_mark
    for part in location:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == part), None)
            if found is not None:
                path, mark, node = f"{path}.{part}".lstrip("."), found[0].start_mark, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            path, mark = f"{path}[{part}]", node.start_mark
    return path, mark


def _complaint(error: ErrorDetails) -> str:
    """The error for a value, with the remedy."""
    context: Mapping[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "value_error":
            return str(context["error"])
        case "missing":
            return f"the key {error['loc'][-1]} is missing"
        case "union_tag_not_found":
            return f"the key {context['discriminator']} is missing, which says the form"
        case layers.UNKNOWN_KEY | "union_tag_invalid":
            return error["msg"]
        case _:
            return f"{error['msg'][0].lower()}{error['msg'][1:]}, got {error['input']!r}"
