"""Reads the file. An error names the file, the line, the key and what to do."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lab.simulator.configuration.configuration import Configuration
from lab.simulator.configuration.keys import FOLDER, Mistake
from lab.simulator.configuration.overrides import SET, OverrideError, override
from lab.strict_yaml import Loader, complaint
from specpair.command_line import known_keys
from specpair.command_line.suggestion import advice


class BadConfiguration(ValueError):
    """A file is no configuration of a simulation. The message names the file, the line and the key."""


def read(path: Path, overrides: Sequence[str] = ()) -> Configuration:
    """The configuration in a file.

    `overrides`: keys that are replaced, each as KEY=VALUE: see `override`.

    Raises BadConfiguration.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadConfiguration(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadConfiguration(f"{path} is not UTF-8 text") from None
    return parse(text, str(path), path.parent, overrides)


def parse(text: str, name: str, folder: Path, overrides: Sequence[str] = ()) -> Configuration:
    """The configuration in the text of a file.

    `name`: of the file, for errors.
    `folder`: where files lie that relative paths name.
    `overrides`: keys that are replaced, each as KEY=VALUE: see `override`.

    Raises BadConfiguration.
    """
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        if isinstance(node, yaml.MappingNode):
            for each in overrides:
                override(node, each)
        given = None if node is None else loader.construct_document(node)
    except yaml.YAMLError as error:
        raise BadConfiguration(f"{name} is not YAML: {complaint(error)}") from None
    except OverrideError as error:
        raise BadConfiguration(str(error)) from None
    finally:
        loader.dispose()
    if not isinstance(given, dict):
        raise BadConfiguration(f"{name} has no keys: 'specpair simulator init' writes an example")
    try:
        return Configuration.model_validate(given, context={FOLDER: folder})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path, _ = _place(node, first["loc"])
        mark = _place(node, [*first["loc"], *_at_fault(first)])[1]
        line = mark.name if mark.name.startswith(SET) else f"{name}, line {mark.line + 1}"
        where = f"{line}: " + (f"{path}: " if path else "")
        raise BadConfiguration(where + _complaint(first)) from None


def _at_fault(error: ErrorDetails) -> Sequence[str | int]:
    """The path of the key at fault, from the place of the error on."""
    context: Mapping[str, Any] = error.get("ctx", {})
    if error["type"] == known_keys.UNKNOWN_KEY:
        return [context["key"]]
    complaint = context.get("error")
    return complaint.at if isinstance(complaint, Mistake) else ()


def _place(node: Any, location: Sequence[str | int]) -> tuple[str, Any]:
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
    """What is wrong with a value, and what to do."""
    context: Mapping[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "value_error":
            return str(context["error"])
        case "missing":
            return f"the key {error['loc'][-1]} is missing"
        case "union_tag_not_found":
            return f"the key {_bare(context['discriminator'])} is missing, which says the form"
        case "union_tag_invalid":
            known = [_bare(each) for each in context["expected_tags"].split(",")]
            return f"no {_bare(context['discriminator'])} {context['tag']!r}{advice(context['tag'], known)}"
        case "literal_error":
            known = [_bare(each) for each in context["expected"].replace(" or ", ",").split(",")]
            return f"no {error['input']!r}{advice(str(error['input']), known)}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"must have keys, got {error['input']!r}"
        case known_keys.UNKNOWN_KEY:
            return error["msg"]
        case _:
            return f"{error['msg'][0].lower()}{error['msg'][1:]}, got {error['input']!r}"


def _bare(quoted: str) -> str:
    return quoted.strip(" '")
