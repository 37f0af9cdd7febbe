"""Single keys of a file, replaced for one run: `workload.rate_rps=4`, `devices.verifiers[big].count=3`."""

import re
from typing import Any

import yaml

from lab.strict_yaml import Loader, complaint
from specpair.command_line.suggestion import advice

SET = "--set "  # what the names of values given so begin with


class OverrideError(ValueError):
    """What is given is no key with a value, or has no place in the file."""


def override(root: yaml.MappingNode, given: str) -> None:
    """Replace a key in the tree of a file, or add it.

    `given`: KEY=VALUE; the key is a path with points, in which an entry of a list is named by its `name`, or by its
        number from 0, behind a point or in brackets; the value is YAML.

    Raises OverrideError.
    """
    path, equals, text = given.partition("=")
    parts = parts_of(path)
    if not equals or not all(parts):
        raise OverrideError(f"{SET}{given}: not KEY=VALUE, such as workload.rate_rps=4")
    loader = Loader(text)
    loader.name = f"{SET}{given}"  # in the marks of its nodes: errors tell it in place of the line
    try:
        value = loader.get_single_node()
    except yaml.YAMLError as error:
        raise OverrideError(f"{SET}{given}: not YAML: {complaint(error)}") from None
    finally:
        loader.dispose()
    if value is None:
        raise OverrideError(f"{SET}{given}: has no value; null is one")
    node: Any = root
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if isinstance(node, yaml.MappingNode):
            node = _in_mapping(node, part, value if last else None, value)
        elif isinstance(node, yaml.SequenceNode):
            node = _in_list(node, part, value if last else None, given)
        else:
            raise OverrideError(f"{SET}{given}: {'.'.join(parts[:number])} has no keys")


def parts_of(path: str) -> list[str]:
    """The keys, names and numbers of a path such as `devices.verifiers[big].count`."""
    return re.sub(r"\[([^\[\]]+)\]", r".\1", path.strip()).split(".")


def _in_mapping(node: yaml.MappingNode, key: str, value: Any | None, marked: Any) -> Any:
    """Set a key, or return its node; one that lacks is made, with no keys."""
    places = [number for number, (known, _) in enumerate(node.value) if known.value == key]
    made = value
    if made is None:
        if places:
            return node.value[places[0]][1]
        made = yaml.MappingNode("tag:yaml.org,2002:map", [], marked.start_mark)
    name = yaml.ScalarNode("tag:yaml.org,2002:str", key, marked.start_mark)
    for place in places:
        del node.value[place]
    node.value.append((name, made))
    return made


def _in_list(node: yaml.SequenceNode, entry: str, value: Any | None, given: str) -> Any:
    """Set an entry, or return its node."""
    names = [_name(each) for each in node.value]
    if entry.isdecimal() and int(entry) < len(names):
        place = int(entry)
    elif entry in names:
        place = names.index(entry)
    else:
        known = [name for name in names if name] or [str(number) for number in range(len(names))]
        raise OverrideError(f"{SET}{given}: no entry {entry!r}{advice(entry, known)}")
    if value is not None:
        node.value[place] = value
    return node.value[place]


def _name(node: Any) -> str:
    """The `name` of an entry; "": it has none."""
    if not isinstance(node, yaml.MappingNode):
        return ""
    return next((str(value.value) for key, value in node.value if key.value == "name"), "")
