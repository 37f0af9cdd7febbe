"""Reads the settings of a verifier from its flags, its variables and `specpair.toml`. An error names the bad one."""

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specpair.command_line.layers import (
    Layer,
    LayeredSettings,
    first_path,
    lasting_layers,
    names_of,
    settings_model,
    settings_table,
)
from specpair.command_line.options import add_option
from specpair.command_line.parser import Parser, flag
from specpair.http_service.options import ROUTER
from specpair.options.option import Option
from verifier_server.options import ADDRESS, DRAFT, ENGINE, LIMITS, MODEL, OPTIONS
from verifier_server.settings import Settings

_log = logging.getLogger("specpair.verifier")


class ListenAddress(LayeredSettings if TYPE_CHECKING else settings_model(LayeredSettings, ADDRESS)):  # type: ignore[misc]
    """Where the command `verifier` listens. Under uvicorn, its own flags say so."""

    if TYPE_CHECKING:
        host: str
        port: int

    @classmethod
    def usual_key(cls, name: str) -> str:
        """The flag of a setting that was not given."""
        return flag(name)


_NAMES = names_of("verifier", ADDRESS | OPTIONS)


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings from `VERIFIER_…` variables and `specpair.toml`, for a server whose address is set elsewhere.

    Raises SettingsError, which names the variable or the file and the key, for a bad value or a misspelt name. Other
    unknown variables are logged.
    """
    layers = _layers({}, None, environment)
    for layer in layers:
        for name in sorted(ListenAddress.model_fields.keys() & layer.values.keys()):
            _log.warning(
                "%s: only the command 'verifier' reads this %s; uvicorn takes --%s", layer.key(name), layer.kind, name
            )
    return Settings.from_layers(layers)


def from_flags(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> tuple[Settings, ListenAddress]:
    """Settings from flags, the environment and `specpair.toml`, the first of which overrides the others.

    Raises SettingsError. With --help, --version or --print-config, prints it and exits.
    """
    return read_flags(flags_parser(OPTIONS), arguments, environment)[:2]


def read_flags(
    parser: Parser, arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> tuple[Settings, ListenAddress, argparse.Namespace]:
    """`from_flags` by a `parser` of `flags_parser`, and all that it parsed: also what a command has added to it."""
    options = parser.parse(arguments, optional=_NAMES.taken)
    given = {name: value for name, value in vars(options).items() if name in _NAMES.taken}
    layers = _layers(given, options.config, environment)
    settings, address = Settings.from_layers(layers), ListenAddress.from_layers(layers)
    if options.print_config:
        print(settings_table([action.dest for action in parser.actions()], [address, settings]))
        parser.exit()
    return settings, address, options


def _layers(given: Mapping[str, Any], config: Path | None, environment: Mapping[str, str]) -> list[Layer]:
    """All layers. `given`: the flags."""
    lasting = lasting_layers(_NAMES, config, environment, lambda warning: _log.warning("%s", warning))
    layers = [_NAMES.present(Layer("flag", given, flag)), *lasting]
    # An empty address is none, as in VERIFIER_PORT=$PORT without a PORT.
    for at, layer in enumerate(layers):
        values = {
            name: value for name, value in layer.values.items() if value != "" or name not in ListenAddress.model_fields
        }
        layers[at] = layer._replace(values=values)
    return layers


def keys_file(config: Path | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The setting `keys_file`, whatever the other settings are. Raises SettingsError."""
    return first_path(_layers({}, config, environment), "keys_file")


class CommandHelp(NamedTuple):
    """What the help of a command that takes all settings begins and ends with."""

    prog: str
    usage: str
    description: str
    examples: tuple[str, ...]
    commands: tuple[str, ...] = ()


SERVE = CommandHelp(
    "verifier",
    "[FLAGS]\n"
    "compile [FLAGS]   (ahead of serving: 'verifier compile --help')\n"
    "selftest [FLAGS]   (one report: 'verifier selftest --help')\n"
    "models ACTION   (models by name: 'verifier models --help')\n"
    "key new | list | revoke   (API keys: 'verifier key --help')\n"
    "completion SHELL   (completions for a shell)",
    "Serve a target model to drafters. Every setting is also an environment variable and a key in specpair.toml: "
    "--gpu-layers is VERIFIER_GPU_LAYERS, and gpu_layers in the table [verifier]. A flag overrides its variable, a "
    "variable the file.",
    (
        "verifier --model llama-8b-instruct-q8_0.gguf --host 0.0.0.0 --api-key KEY",
        "verifier --model llama-8b.gguf --draft-model llama-1b.gguf --slots 8",
        "VERIFIER_BACKEND=torch verifier --model /models/Llama-3.1-8B",
    ),
    ("compile", "selftest", "models", "key", "completion"),
)


def flags_parser(options: Mapping[str, Option], command: CommandHelp = SERVE) -> Parser:
    """The parser of the command `verifier`, or of another that takes its settings, with the flags of `options`."""
    parser = Parser(**command._asdict())
    parser.add_config_flags()
    server = parser.add_argument_group("server")
    for option in ADDRESS.values():
        add_option(server, option)
    groups = {title: parser.add_argument_group(title) for title in (MODEL, ENGINE, DRAFT, LIMITS, ROUTER)}
    for option in options.values():
        add_option(groups.get(option.about.group, groups[LIMITS]), option)
    return parser
