"""Bundles the modules of a page into one script, so that a page without other files runs the same code."""

import re
from collections.abc import Mapping

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.-]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|class|function\*?|async function\*?) (\w+))", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)
_ALIAS = re.compile(r"(\w+)\s+as\s+(\w+)")


def bundled(entry: str, modules: Mapping[str, str]) -> str:
    """The module `entry` with all that it imports. `modules`: their code by file name.

    Each one becomes a function that runs once and returns what it exports, so names of different modules do not meet.
    Understood are `import { a, b as c } from "./name.js";` and exports of constants, classes and functions, which is
    what the pages have. Raises ValueError for anything else, for a module that is not there, and for a circle of
    imports.
    """
    order: dict[str, str] = {}
    _add(entry, modules, order, ())
    return "".join(order.values())


def _add(name: str, modules: Mapping[str, str], order: dict[str, str], above: tuple[str, ...]) -> None:
    """Put a module and those that it imports into `order`, these first. `above`: those that import it."""
    if name in above:
        raise ValueError(f"modules import each other: {' imports '.join((*above, name))}")
    if name in order:
        return
    if name not in modules:
        raise ValueError(f"{above[-1] if above else 'the page'} imports {name}, which is not there")
    code = modules[name]
    for match in _IMPORT.finditer(code):
        _add(match[2], modules, order, (*above, name))
    exports = _EXPORT.findall(code)
    code = _EXPORT.sub("", _IMPORT.sub(_taken, code))
    if (other := _OTHER.search(code)) is not None:
        raise ValueError(f"{name}: this import or export is not understood: {other[0]}")
    order[name] = f"const {_variable(name)} = (() => {{\n{code}return {{ {', '.join(exports)} }};\n}})();\n"


def _taken(match: re.Match[str]) -> str:
    names = _ALIAS.sub(r"\1: \2", match[1])
    return f"const {{{names}}} = {_variable(match[2])};"


def _variable(name: str) -> str:
    return "$" + re.sub(r"\W", "_", name.removesuffix(".js"))
