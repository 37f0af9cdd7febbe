"""YAML without its surprises."""

from typing import Any

import yaml


class Loader(yaml.SafeLoader):  # type: ignore[misc]
    """As in YAML 1.2, only true and false are switches, and `mode: off` is a text. No key may be given twice."""

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


def complaint(error: yaml.YAMLError) -> str:
    """What is wrong with a text that is not YAML, and where, on one line."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or problem is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
