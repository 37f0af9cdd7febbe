"""Makes the documentation pages that come from the code: options, settings, commands, REST, OpenAI."""

import argparse
import json
from collections.abc import Iterable, Iterator
from typing import Any

from drafter_client import program_options
from drafter_client.cli.program import parsers as drafter_parsers
from drafter_client.options import Options
from drafter_client.serve import live as drafter
from gateway.openai_api.messages.errors import FORM
from gateway.openai_api.messages.fields import EMPTY, REFUSED, TABLE
from gateway.openai_api.messages.requests import ChatRequest
from gateway.openai_api.messages.thinking import ThinkingFields
from gateway.router import endpoints as router
from gateway.router.settings import OPTIONS as ROUTER
from lab.simulator.command_line import schema as simulator_schema
from lab.simulator.results.measures import MEASURES
from lab.simulator.search.comparison import SearchKeys
from specpair.command_line.parser import Parser, Parsers, Switch, flag, meaning, placeholder
from specpair.http_service.openapi.operation import Operation
from specpair.options.option import Option, options_of
from specpair.own_commands import parsers as specpair_parsers
from specpair.protocol.errors import RequestError, ServerError
from specpair.protocol.messages import GenerateRequest
from verifier_server import options as verifier
from verifier_server.api.document import document
from verifier_server.api.operations import OPERATIONS
from verifier_server.program import parsers as verifier_parsers

Json = dict[str, Any]
# The flags of a verifier's settings have a page of their own.
COMMANDS: Parsers = {
    **drafter_parsers(),
    **verifier_parsers({}),
    **specpair_parsers(),
}


def rest() -> str:
    """Every endpoint of the OpenAPI document, then every error and every object that a body is made of."""
    whole = document()
    text = [
        "# REST reference\n\n"
        "The endpoints and their bodies, from the OpenAPI document that a verifier serves as `/openapi.json`, and as a "
        "page to try them out at `/docs`. The [walk through the interface](../rest.md) has an example of each, and the "
        "rules that they follow.\n"
    ]
    for operation in OPERATIONS:
        described = whole["paths"][operation.described_path][operation.method.lower()]
        text += ["", f"## {operation.method} {operation.described_path}", "", *_operation(described)]
        text += ["", f"[Errors](#errors): {_codes(operation)}."]
    text += ["", "## drafter serve", "", *_drafter(), "", "## specpair router", "", *_router()]
    text += ["", "## Errors", "", *_errors(), "", "## Objects"]
    of_router = {name: each for name, each in router.document()["components"]["schemas"].items() if name in _ROUTERS}
    for name, schema in (whole["components"]["schemas"] | of_router).items():
        text += ["", f"### {name}", "", *_schema(schema)]
    return "\n".join(text) + "\n"


def settings() -> str:
    """Every setting of both ends and of the router: as a variable, as a key of the file, and as a flag."""
    text = [
        "# Settings\n\n"
        "A flag overrides its variable, a variable its key in `specpair.toml`, and a key the default. "
        "[Settings](../service.md#settings) says how they go together. `verifier --print-config` and "
        "`drafter --print-config` show each value and where it came from.\n\n"
        "## verifier\n\n"
        "Keys go in the table `[verifier]`. Under uvicorn there are no flags, and its own `--host` and `--port` set "
        "the address.\n\n"
        "| key | variable | flag | default | range | meaning |\n|---|---|---|---|---|---|"
    ]
    of_verifier = verifier.ADDRESS | verifier.OPTIONS
    text += [f"{_setting('verifier', name, option)} |" for name, option in of_verifier.items()]
    text += [
        "\n## drafter\n\n"
        "Keys go in the table `[drafter]`. A command ignores the variables and keys that it has no flag for. "
        "[Command line](command-line.md) has the defaults of each command.\n\n"
        "| key | variable | flag | default | range | meaning | commands |\n|---|---|---|---|---|---|---|"
    ]
    of_each = {name: [action.dest for action in make().actions()] for name, make in drafter_parsers().items()}
    commands_of = {name: flags for name, flags in of_each.items() if "print_config" in flags}  # those with settings
    for name, option in program_options.OPTIONS.items():
        having = ", ".join(f"`{command}`" for command, flags in commands_of.items() if name in flags)
        text.append(f"{_setting('drafter', name, option)} | {having} |")
    text += [
        "\n## router\n\n"
        "Keys go in the table `[router]`.\n\n"
        "| key | variable | flag | default | range | meaning |\n|---|---|---|---|---|---|"
    ]
    text += [f"{_setting('router', name, option)} |" for name, option in ROUTER.items()]
    return "\n".join(text) + "\n"


def _setting(table: str, name: str, option: Option) -> str:
    """The row of a setting without its end."""
    names = f"| `{name}` | `{table.upper()}_{name.upper()}` | `{flag(name)}`"
    words = option.about.words + (f"; formerly {option.about.formerly}" if option.about.formerly else "")
    return f"{names} | {_default(option)} | {_range(option)} | {_cell(words)}"


def _range(option: Option) -> str:
    return _cell(option.bounds) or _listed(option.choices)


def _default(option: Option) -> str:
    none = option.usual in (None, "", (), {})
    return option.about.usually or ("" if none else _code(option.usual))


def options() -> str:
    """Every option of a text, which programs, requests, commands and settings have under one name."""
    text = [
        "# Options of a text\n\n"
        "Each has one name in Python (`Options`), in requests to `/prefill` and `/generate`, in requests to "
        "[OpenAI's endpoints](openai-fields.md), as a flag and as a [setting](settings.md).\n\n"
        "| option | default | range | meaning | flag | `/generate` | OpenAI |\n|---|---|---|---|---|---|---|"
    ]
    for name, option in options_of(Options).items():
        about = option.about
        flagged = f"`{flag(name)}`" if about.group else ""
        there = ["yes" if name in schema.model_fields else "" for schema in (GenerateRequest, ChatRequest)]
        cells = [f"`{name}`", _default(option), _range(option), _cell(about.words), flagged, *there]
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def command_line() -> str:
    """Every flag of the commands."""
    text = [
        "# Command line\n\n"
        "Without an activated `.venv`, `drafter` is `.venv/bin/python -m drafter_client`, and `verifier` is "
        "`.venv/bin/python -m verifier_server`. `--help` prints the same."
    ]
    for command, make in COMMANDS.items():
        text += ["", f"## {command}", "", *_flags(make())]
        if command == "verifier":
            text += ["", "Its other flags are its [settings](settings.md)."]
    return "\n".join(text) + "\n"


def rules() -> list[str]:
    """The rows of the table of what requests may ask for, and what becomes of it. The page on agents has examples."""
    forms = [TABLE[name] for name in ("ChatRequest", "CompletionRequest", "ResponseRequest", "MessagesRequest")]
    also = {name: other for each in forms for name, other in each.also.items()}
    thoughts = dict.fromkeys((*ThinkingFields.model_fields, *(name for name in also if also[name] in _OF_THOUGHTS)))
    hints = dict.fromkeys(name for each in forms for name in each.hints if name not in thoughts)
    nested = (f"{each.path}.{name}" for each in TABLE.values() if each.path for name in each.hints)
    steps = {name: values for each in forms for name, values in each.only.items() if name not in thoughts}
    other = [f"`{name}` ({also[name]})" for name in sorted(also) if name not in thoughts]
    return [
        f"| another server's name of a parameter | used | {', '.join(other)} |",
        f"| thoughts | used if the chat template has the variable, otherwise a hint | {_listed(thoughts)} |",
        f"| hints | taken, and named in the reply; refused with `--strict` | {_listed([*hints, *nested])} |",
        "| handling, and notes of programs | taken | "
        f"{_listed(dict.fromkeys(name for each in forms for name in each.ignored))} |",
        "| steps and reports that are missing | refused, unless the value asks for nothing | " + _listed(steps) + " |",
        *(f"| {what} | refused | {why} |" for what, why in REFUSED.items()),
    ]


_OF_THOUGHTS = {"thinking", "thinking_budget"}


def openai_fields() -> str:
    """The support of each field of an object in a request to OpenAI's endpoints."""
    schemas = document()["components"]["schemas"]
    text = [
        "# Fields of OpenAI's requests\n\n"
        "What [OpenAI's endpoints](../openai.md) of both ends do with each field. A field that is not listed is taken "
        f"if it is {_values(EMPTY)}, which ask for nothing. Otherwise the reply is a 400 that names the field: to "
        "ignore it would give another text than the one that was asked for.\n\n"
        "In the requests themselves:\n",
        *("| what a request asks for | what happens | parameters, or why |", "|---|---|---|", *rules()),
    ]
    for name, beside in TABLE.items():
        others = {*beside.ignored, *beside.hints, *beside.only, *beside.also}
        used = [each for each in schemas[name]["properties"] if each not in others]
        text += ["", f"## {name}", "", f"{schemas[name]['description']} [Its fields](rest.md#{name.lower()})."]
        text += ["", "| fields | taken |", "|---|---|", f"| {_listed(used)} | used |"]
        text += [f"| `{name}` | used, as `{other}` |" for name, other in beside.also.items()]
        if beside.ignored:
            text.append(f"| {_listed(beside.ignored)} | with any value, without effect |")
        if beside.hints:
            text.append(f"| {_listed(beside.hints)} | with any value, without effect, and named in the reply |")
        alike: dict[str, list[str]] = {}  # names of fields, by the rest of their row
        for field, values in beside.only.items():
            taken = f"only as {_values((*values, None))}"
            alike.setdefault(taken, []).append(field)
        text += [f"| {_listed(fields)} | {taken} |" for taken, fields in alike.items()]
    return "\n".join(text) + "\n"


def simulator() -> str:
    """Every key of the files of a simulation and of a search, by the object that has it."""
    whole = simulator_schema()
    objects = {"Configuration": whole, **whole["$defs"], "SearchKeys": SearchKeys.model_json_schema()}
    text = [
        "# The file of a simulation\n\n[The simulator](../simulator.md) explains the file. The file itself is a "
        "`Configuration`. `specpair simulator schema` prints these objects as JSON Schema. The file of a "
        "[search](../simulator.md#search) is a `SearchKeys`.\n"
    ]
    for name, each in objects.items():
        text += [f"## {name}\n", *_schema(each), ""]
    return "\n".join(text)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _values(values: Iterable[object]) -> str:
    return " or ".join(f"`{json.dumps(value)}`" for value in values)


def simulator_measures() -> str:
    """Every measure of a run."""
    text = [
        "# Measures of a simulation\n\n[The simulator](../simulator.md#read-the-results) says where they stand. "
        "`objectives` of a search are those that are better if they are more or less.\n\n"
        "| name | shown as | unit | better | meaning |\n|---|---|---|---|---|"
    ]
    for each in MEASURES.values():
        text.append(f"| `{each.name}` | {each.words} | {each.unit} | {each.better} | {_cell(each.meaning)} |")
    return "\n".join(text) + "\n"


# By their paths in docs, where no file of such a name lies.
PAGES = {
    "reference/options.md": options,
    "reference/rest.md": rest,
    "reference/openai-fields.md": openai_fields,
    "reference/settings.md": settings,
    "reference/command-line.md": command_line,
    "reference/simulator.md": simulator,
    "reference/simulator-measures.md": simulator_measures,
}


def _operation(operation: Json) -> Iterator[str]:
    yield f"{operation['summary']}."
    if "description" in operation:
        yield from ("", operation["description"])
    if "parameters" in operation:
        yield from ("", "| parameter | in | meaning |", "|---|---|---|")
        for each in operation["parameters"]:
            yield f"| `{each['name']}` | {each['in']} | {_cell(each['description'])} |"
    if "requestBody" in operation:
        yield from ("", f"Body: {_type(operation['requestBody']['content']['application/json']['schema'])}.")
    contents = operation["responses"]["200"]["content"]
    if "application/json" in contents:
        yield from ("", f"Response: {_type(contents['application/json']['schema'])}.")
    if "text/plain" in contents:
        yield from ("", "Response: plain text.")
    if "text/event-stream" in contents:
        kinds = [kind["properties"] for kind in contents["text/event-stream"]["schema"]["oneOf"]]
        last = "`end` or `error`" if "event" in kinds[0] else "`[DONE]` or an error"
        yield from ("", f"Server-sent events, of which the last is {last}:", "")
        for kind in kinds:
            name = f"`{kind['event']['const']}`: " if "event" in kind else ""
            yield f"* {name}{_type(kind['data']['contentSchema']) if 'contentSchema' in kind['data'] else '`[DONE]`'}"


def _drafter() -> Iterator[str]:
    yield (
        "`drafter serve` has a part of these endpoints, with the same bodies, and errors of its own. It serves its "
        "OpenAPI document as `/openapi.json`, and the page at `/docs`, too."
    )
    yield from ("", "| endpoint | errors |", "|---|---|")
    for operation in drafter.SERVICE.operations:
        yield f"| `{operation.method} {operation.described_path}` | {_codes(operation)} |"


_ROUTERS = ("Latency", "LeftResponse", "ModelStats", "NodeInfo", "NodeRequest", "NodesResponse", "StatsResponse")


def _router() -> Iterator[str]:
    yield (
        "`specpair router` passes on the endpoints of [verifiers and drafters](../router.md), and has these beside "
        "those on its state."
    )
    yield from ("", "| endpoint | body | response | errors |", "|---|---|---|---|")
    for operation in router.NODES:
        names = [model.__name__ if model else "" for model in (operation.request, operation.response)]
        body, response = (f"[{name}](#{name.lower()})" if name else "" for name in names)
        yield f"| `{operation.method} {operation.path}` | {body} | {response} | {_codes(operation)} |"


def _codes(operation: Operation) -> str:
    bodies = (operation.form.body(error("")) for error in operation.errors)
    return ", ".join(f"`{body['error']['code']}`" for body in bodies)


def _errors() -> Iterator[str]:
    renamed = [
        f"`{FORM.body(error(''))['error']['code']}` for `{error.code}`"
        for operation in OPERATIONS
        for error in operation.errors
        if operation.form == FORM and FORM.body(error(""))["error"]["code"] != error.code
    ]
    yield (
        "OpenAI's endpoints (`/v1`) have the status 400 instead of 422, always a `param`, and the codes "
        f"{', '.join(dict.fromkeys(renamed))}."
    )
    yield ""
    raised = [error for base in (RequestError, ServerError) for error in base.__subclasses__()]
    yield from ("| status | code | when |", "|---|---|---|")
    for error in sorted(raised, key=lambda error: error.status):
        yield f"| {error.status} | `{error.code}` | {_cell(error.__doc__ or '')} |"


def _schema(schema: Json) -> Iterator[str]:
    if "description" in schema:
        yield from (schema["description"], "")
    if "enum" in schema:
        yield "One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + "."
        return
    if "properties" not in schema:
        yield f"{_type(schema)}."
        return
    yield from ("| field | type | default | meaning |", "|---|---|---|---|")
    alike: dict[str, list[str]] = {}  # names of fields, by the rest of their row
    for name, field in schema["properties"].items():
        default = "required" if name in schema.get("required", ()) else _code(field.get("default"))
        row = f"{_type(field)} | {default} | {_cell(field.get('description', ''))} |"
        alike.setdefault(row, []).append(f"`{name}`")
    yield from (f"| {', '.join(names)} | {row}" for row, names in alike.items())


def _type(schema: Json) -> str:
    """The type of a schema in words, with a link to an object."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if forms := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(_type(each) for each in forms)
    if "allOf" in schema:
        return _type(schema["allOf"][0])
    if "enum" in schema:
        return " or ".join(_value(each) for each in schema["enum"])
    if "const" in schema:
        return _value(schema["const"])
    if "prefixItems" in schema:
        return f"array of {' and '.join(_type(each) for each in schema['prefixItems'])}"
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}"
    if "additionalProperties" in schema and isinstance(schema["additionalProperties"], dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))


def _flags(parser: Parser) -> Iterator[str]:
    yield from (" ".join((parser.description or "").split()), "")
    shown = [
        action
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction)
        and action.help != argparse.SUPPRESS
        and "--version" not in action.option_strings
    ]
    if shown:
        yield from ("| flag | meaning |", "|---|---|")
    for action in shown:
        yield f"| `{_flag(action)}` | {_cell(meaning(action))} |"


def _flag(action: argparse.Action) -> str:
    """A flag with the placeholder of its value, or the name of a positional argument."""
    names = ", ".join(action.option_strings[: 2 if isinstance(action, Switch) else 1])
    return _cell(" ".join(each for each in (names, placeholder(action)) if each))


def _value(value: object) -> str:
    """A value of JSON."""
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


def _code(value: object) -> str:
    return "" if value is None else f"`{str(value).lower()}`"


def _cell(text: str) -> str:
    """A text that fits into a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
