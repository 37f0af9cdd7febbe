"""A program that renders chat templates, one after the other. Only a separate process can be ended for sure.

Each request (see `specpair.child_processes.worker`) has `template`, `variables`, and `most`, the maximum length of
the result in characters. The answer has `text`; or, where `variables` is null, the names of the template's variables;
or `refused`, the template's own reason to take no such messages; or
`exceeded`, a limit of size or memory; or `error`.

Templates find what they find in transformers: its functions, its filter `tojson`, its tag `generation`, and variables
that are None unless they are given.
"""

import json
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateRuntimeError
from jinja2.ext import Extension
from jinja2.meta import find_undeclared_variables
from jinja2.nodes import Node, Scope
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specpair.child_processes.worker import serve

_DEFAULTS = {"tools": None, "documents": None}


class _Refused(TemplateRuntimeError):
    """The template has called `raise_exception`."""


class _Generation(Extension):
    """The tag `generation` around text that a model is trained on. Only training uses it, so it has no effect."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        return Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _refuse(message: str) -> NoReturn:
    raise _Refused(str(message))


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Replaces Jinja's filter, which escapes HTML and sorts keys."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    made.filters["tojson"] = _json
    made.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    return made


_ENVIRONMENT = _environment()


def rendered(template: str, variables: dict[str, object] | None, most: int) -> dict[str, Any]:
    """Render the template; return the answer. `most`: characters that the text may have."""
    if variables is None:
        return _names(template)
    given = {name: value for name, value in variables.items() if name not in _ENVIRONMENT.globals}
    parts: list[str] = []
    length = 0
    try:
        for part in _compiled(template).generate(_DEFAULTS | given):
            parts.append(part)
            length += len(part)
            if length > most:
                return {"exceeded": f"it makes more than {most} characters of the messages"}
    except _Refused as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"exceeded": "MemoryError"}
    except Exception as error:  # a template is a program, so any error can occur
        return {"error": str(error) or type(error).__name__}
    return {"text": "".join(parts)}


def _names(template: str) -> dict[str, Any]:
    try:
        return {"names": sorted(find_undeclared_variables(_ENVIRONMENT.parse(template)))}
    except Exception as error:
        return {"error": str(error) or type(error).__name__}


@lru_cache(maxsize=4)
def _compiled(template: str) -> Template:
    return _ENVIRONMENT.from_string(template)


if __name__ == "__main__":
    serve(lambda request: rendered(**request))
