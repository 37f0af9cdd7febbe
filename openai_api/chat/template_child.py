"""A program that renders chat templates, one after the other. Only a separate process can be ended for sure.

Each line of standard input is a JSON object: `template`, `variables`, and `most`, the maximum length of the result in
characters. It is answered with one line on standard output, a JSON object with `text` or `error`. The program runs by
its path and imports nothing of this package.
"""

import json
import sys
from functools import lru_cache
from typing import NoReturn

from jinja2 import Template, TemplateRuntimeError
from jinja2.sandbox import ImmutableSandboxedEnvironment

_MEMORY = 2**30  # bytes of address space, where the system can limit it
_ENVIRONMENT = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
)


def rendered(template: str, variables: dict[str, object], most: int) -> dict[str, str]:
    """Render the template; return the object for standard output. `most`: characters that the text may have."""
    parts: list[str] = []
    length = 0
    try:
        for part in _compiled(template).generate({**variables, "raise_exception": _refuse}):
            parts.append(part)
            length += len(part)
            if length > most:
                return {"error": f"it makes more than {most} characters of the messages"}
    except Exception as error:  # a template is a program, so any error can occur
        return {"error": str(error) or type(error).__name__}
    return {"text": "".join(parts)}


@lru_cache(maxsize=4)
def _compiled(template: str) -> Template:
    return _ENVIRONMENT.from_string(template)


def _refuse(message: str) -> NoReturn:
    raise TemplateRuntimeError(message)


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    except (ImportError, OSError, ValueError):  # not possible on this system: the parent's deadline remains
        pass


if __name__ == "__main__":
    _limit_memory()
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(rendered(request["template"], request["variables"], request["most"])), flush=True)
