"""Reads the settings of a verifier from its flags, its variables and `specpair.toml`. An error names the bad one."""

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from command_line.layers import Layer, LayeredSettings, Names, first_path, lasting_layers
from command_line.options.flags import add_option
from command_line.parser import Parser, Switch, flag
from command_line.print_config import table
from verifier_server.settings import ENGINE, Settings

_log = logging.getLogger("specpair.verifier")
HOST, PORT = "127.0.0.1", 8000
_GROUPS = {"model": ("backend",), "engine": ("prefill_chunk",)}  # the settings beside those of an engine
_DRAFT, _OTHERS = "server-side drafting (mode fused)", "sessions and limits"


def _port(text: str) -> int:
    """The port number in `text`. Raises ArgumentTypeError, for the flag."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, which is a number from 0 to 65535")
    return int(text)


def _checked_port(value: int | str) -> int:
    try:
        return _port(str(value))
    except argparse.ArgumentTypeError as error:
        raise ValueError(str(error)) from None


class Address(LayeredSettings):
    """Where the command `verifier` listens. Under uvicorn, its own flags say so."""

    host: Annotated[str, Field(description="address to listen on")] = HOST
    port: Annotated[int, BeforeValidator(_checked_port), Field(description="port; 0 takes a free one")] = PORT

    @classmethod
    def usual_key(cls, name: str) -> str:
        """The flag of a setting that was not given."""
        return flag(name)


_NAMES = (*Address.model_fields, *Settings.model_fields)


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings from `VERIFIER_…` variables and `specpair.toml`, for a server whose address is set elsewhere.

    Raises SettingsError, which names the variable or the file and the key, for a bad value or a misspelt name. Other
    unknown variables are logged.
    """
    layers = _layers({}, None, environment)
    for layer in layers:
        for name in sorted(Address.model_fields.keys() & layer.values.keys()):
            _log.warning(
                "%s: only the command 'verifier' reads this %s; uvicorn takes --%s", layer.key(name), layer.kind, name
            )
    return Settings.from_layers(layers)


def from_flags(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> tuple[Settings, Address]:
    """Settings from flags, the environment and `specpair.toml`, the first of which overrides the others.

    Raises SettingsError. With --help, --version or --print-config, prints it and exits.
    """
    return read_flags(flags_parser(list(Settings.model_fields.items())), arguments, environment)[:2]


def read_flags(
    parser: Parser, arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> tuple[Settings, Address, argparse.Namespace]:
    """`from_flags` by a `parser` of `flags_parser`, and all that it parsed: also what a command has added to it."""
    options = parser.parse(arguments, optional=_NAMES)
    given = {name: value for name, value in vars(options).items() if name in _NAMES}
    layers = _layers(given, options.config, environment)
    settings, address = Settings.from_layers(layers), Address.from_layers(layers)
    if options.print_config:
        print(table([action.dest for action in parser.actions()], [address, settings]))
        parser.exit()
    return settings, address, options


def _layers(given: Mapping[str, Any], config: Path | None, environment: Mapping[str, str]) -> list[Layer]:
    """All layers. `given`: the flags."""
    names = Names("verifier", _NAMES, Settings.paths(), Settings.secrets())
    lasting = lasting_layers(names, config, environment, lambda warning: _log.warning("%s", warning))
    layers = [Layer("flag", given, flag), *lasting]
    # An empty address is none, as in VERIFIER_PORT=$PORT without a PORT.
    for at, layer in enumerate(layers):
        values = {
            name: value for name, value in layer.values.items() if value != "" or name not in Address.model_fields
        }
        layers[at] = layer._replace(values=values)
    return layers


def keys_file(config: Path | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The setting `keys_file`, whatever the other settings are. Raises SettingsError."""
    return first_path(_layers({}, config, environment), "keys_file")


class Command(NamedTuple):
    """What the help of a command that takes all settings begins and ends with."""

    name: str
    usage: str
    description: str
    examples: tuple[str, ...]
    commands: tuple[str, ...] = ()


SERVE = Command(
    "verifier",
    "[FLAGS]\n"
    "compile [FLAGS]   (ahead of serving: 'verifier compile --help')\n"
    "selftest [FLAGS]   (one report: 'verifier selftest --help')\n"
    "key new | list | revoke   (API keys: 'verifier key --help')",
    "Serve a target model to drafters. Every setting is also an environment variable and a key in specpair.toml: "
    "--gpu-layers is VERIFIER_GPU_LAYERS, and gpu_layers in the table [verifier]. A flag overrides its variable, a "
    "variable the file.",
    (
        "verifier --model llama-8b-instruct-q8_0.gguf --host 0.0.0.0 --api-key KEY",
        "verifier --model llama-8b.gguf --draft-model llama-1b.gguf --rows 8",
        "VERIFIER_BACKEND=torch verifier --model /models/Llama-3.1-8B",
    ),
    ("compile", "selftest", "key"),
)


def flags_parser(settings: Sequence[tuple[str, FieldInfo]], command: Command = SERVE) -> Parser:
    """The parser of the command `verifier`, or of another that takes its settings. Flags that are not given parse to
    None."""
    parser = Parser(
        command.name,
        usage=command.usage,
        description=command.description,
        examples=command.examples,
        commands=command.commands,
    )
    parser.add_config_flags()
    server = parser.add_argument_group("server")
    server.add_argument("--host", metavar="ADDRESS", help=f"address to listen on (default: {HOST})")
    server.add_argument("--port", type=_port, metavar="N", help=f"port; 0 takes a free one (default: {PORT})")
    groups = {title: parser.add_argument_group(title) for title in (*_GROUPS, _DRAFT, _OTHERS)}
    for name, field in settings:
        if name in ENGINE:
            add_option(groups[ENGINE[name].about.group], ENGINE[name])
            continue
        default = "" if field.default in (None, "") else f" (default: {_shown(field.default)})"
        help_ = f"{field.description}{default}".replace("%", "%%")
        if type(field.default) is bool:
            groups[_group(name)].add_argument(flag(name), dest=name, action=Switch, default=None, help=help_)
        else:
            groups[_group(name)].add_argument(flag(name), dest=name, metavar=_value(name, field), help=help_)
    return parser


def _shown(value: Any) -> str:
    """A default as one would write it behind the flag."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).lower()


def _group(name: str) -> str:
    """The group of the help text in which a setting is listed."""
    if name.startswith("draft_"):
        return _DRAFT
    return next((title for title, names in _GROUPS.items() if name in names), _OTHERS)


def _value(name: str, field: FieldInfo) -> str:
    """The placeholder of a flag's value in the help."""
    kinds: tuple[tuple[Any, str], ...] = ((int, "N"), (float, "SECONDS"))
    if name.endswith("model"):
        return "PATH"
    if name == "cors_origins":
        return "URLS"
    if name == "allowed_hosts":
        return "NAMES"
    if name == "backend" or name == "draft_backend":
        return "NAME"
    if field.default == "auto":
        return "auto|N"
    return next((word for kind, word in kinds if type(field.default) is kind), name.rpartition("_")[2].upper())
