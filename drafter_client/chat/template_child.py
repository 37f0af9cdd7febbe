"""Renders one chat template and ends. A program of its own, since nothing within a program can end a template for sure.

Standard input has one JSON object: `template`, `variables`, and `most`, the characters that may come of it. Standard
output gets one: `text`, or `error`. It imports nothing of this package: it runs by its path.
"""

import json
import sys
from typing import NoReturn

from jinja2.sandbox import ImmutableSandboxedEnvironment

_MEMORY = 2**30  # bytes of address space, where the system can limit it


class Refused(Exception):
    """The template says that it cannot be rendered."""


def rendered(template: str, variables: dict[str, object], most: int) -> dict[str, str]:
    """What goes to standard output."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    parts: list[str] = []
    length = 0
    try:
        for part in environment.from_string(template).generate(**variables, raise_exception=_refuse):
            parts.append(part)
            length += len(part)
            if length > most:
                return {"error": f"it makes more than {most} characters of the messages"}
    except Exception as error:  # a template is a program: it can fail in any way
        return {"error": str(error) or type(error).__name__}
    return {"text": "".join(parts)}


def _refuse(message: str) -> NoReturn:
    raise Refused(message)


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    except (ImportError, OSError, ValueError):  # not on this system: the parent's deadline is left
        pass


if __name__ == "__main__":
    _limit_memory()
    request = json.load(sys.stdin)
    json.dump(rendered(request["template"], request["variables"], request["most"]), sys.stdout)
