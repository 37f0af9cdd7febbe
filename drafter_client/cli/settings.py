"""The drafter's settings: flags that can also be variables (`DRAFTER_…`) or keys in `specpair.toml`, by layers."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from drafter_client.program_options import ENGINE, NGRAM, OPTIONS, is_plugged_drafter
from specpair.command_line.given_values import SettingsError
from specpair.command_line.layers import (
    Layer,
    LayeredSettings,
    first_path,
    lasting_layers,
    names_of,
    settings_model,
    settings_table,
)
from specpair.command_line.options import option_of
from specpair.command_line.parser import Parser, flag
from specpair.options.option import Option
from specpair.protocol.terminal_text import several_lines


class DrafterSettings(LayeredSettings):
    """The settings of a command of the drafter. Its fields are made from the options for which it has flags."""

    @classmethod
    def usual_key(cls, name: str) -> str:
        """The flag of a setting that was not given."""
        return flag(name)


# The flags that can last: not those of one text or of its output. A command takes those that it has a flag for.
NAMES = names_of("drafter", OPTIONS)


def parsed(parser: Parser, arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> argparse.Namespace:
    """The flags of a command, and as `settings` the `DrafterSettings` that say where the lasting ones came from.

    A flag that was not given has the value of its variable, else of its key in the file, else its default. Exits with
    status 2 and an error that names the flag, the variable, or the file and the key.
    """
    found = {action.dest: option_of(action) for action in parser.actions()}
    flags = {name: option for name, option in found.items() if option is not None and option.lasts}
    options = parser.parse(arguments, optional=flags)
    given = {name: value for name, value in vars(options).items() if name in flags or name in NAMES.former}
    try:
        lasting = lasting_layers(NAMES, options.config, environment, _warn)
        layers = [NAMES.present(Layer("flag", given, partial(_flag, given))), *lasting]
        options.settings = settings_model(DrafterSettings, flags).from_layers(_of_engine(layers, flags))
    except SettingsError as error:
        parser.error(str(error))
    for name in flags:
        setattr(options, name, getattr(options.settings, name))
    return options


def keys_file(config: Path | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The setting `keys_file`, whatever the other settings are. Raises SettingsError."""
    return first_path(lasting_layers(NAMES, config, environment, _warn), "keys_file")


def print_if_asked(parser: Parser, options: argparse.Namespace) -> None:
    """With --print-config, print the settings of the command, and exit."""
    if options.print_config:
        print(settings_table([action.dest for action in parser.actions()], [options.settings]))
        parser.exit()


def _flag(given: Mapping[str, Any], name: str) -> str:
    """The flag of the setting `name`, as it was given."""
    return flag(f"no_{name}" if given[name] is False else name)


def _warn(warning: str) -> None:
    print(f"drafter: {several_lines(warning)}", file=sys.stderr)


def _of_engine(layers: Sequence[Layer], flags: Mapping[str, Option]) -> list[Layer]:
    """The layers without what is for another engine than the command's.

    These are settings of an engine in a variable or in the file, where the engine that the same layer or a lower one
    names is overridden by a higher one; and lookup as the engine, for a command that runs a model.
    """
    models_only = "backend" in flags and NGRAM not in flags["backend"].choices
    if models_only:
        flags_given, *lasting = layers
        others = [_without(each, "backend") if _is_drafter(each.values.get("backend")) else each for each in lasting]
        layers = [flags_given, *others]
    named = [layer.values.get("backend") for layer in layers]
    in_force = next(filter(None, named), None)
    meant = [next(filter(None, named[at:]), in_force) for at in range(len(layers))]
    return [
        layer if engine == in_force else _without(layer, *ENGINE) for layer, engine in zip(layers, meant, strict=True)
    ]


def _is_drafter(backend: Any) -> bool:
    return backend == NGRAM or (isinstance(backend, str) and is_plugged_drafter(backend))


def _without(layer: Layer, *names: str) -> Layer:
    return layer._replace(values={name: value for name, value in layer.values.items() if name not in names})
