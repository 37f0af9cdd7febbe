"""Flags that several commands of the drafter share, and where their values come from, by layers: flags, variables
(`DRAFTER_…`), keys in `specpair.toml`. `commands` says which command has which.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from drafter_client.hosts import Host, HostsFile, JoinError
from drafter_client.options import Mode, Options
from drafter_client.program_options import ENGINE, NGRAM, OPTIONS, ProgramOptions, is_plugged_drafter
from specpair.command_line import setting_values
from specpair.command_line.layers import (
    Layer,
    LayeredSettings,
    Names,
    first_path,
    lasting_layers,
    settings_model,
    settings_table,
)
from specpair.command_line.options import add_option, add_options, option_of
from specpair.command_line.parser import Parser, Switch, flag
from specpair.command_line.setting_values import SettingsError, advice
from specpair.http_service.options import SERVICE
from specpair.options.option import Option
from specpair.protocol.terminal_text import several_lines


class DrafterSettings(LayeredSettings):
    """The settings of a command of the drafter. Its fields are made from the options for which it has flags."""

    @classmethod
    def usual_key(cls, name: str) -> str:
        return flag(name)


# The flags that can last: not those of one text or of its output. A command takes those that it has a flag for.
NAMES = Names("drafter", OPTIONS)


def parsed(parser: Parser, arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> argparse.Namespace:
    """The flags of a command, and as `settings` the `DrafterSettings` with the source of each.

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
        options.joined = None
        if "verifier" in flags:
            layers, options.joined = _with_host(layers, vars(options).pop("host_name", None))
        options.settings = settings_model(DrafterSettings, flags).from_layers(_of_engine(layers, flags))
    except SettingsError as error:
        parser.error(str(error))
    for name in flags:
        setattr(options, name, getattr(options.settings, name))
    return options


_MEASURED = {"mode", "draft_model", "draft_hf", "backend"}  # settings that `drafter tune` finds, unless one is given


def _with_host(layers: list[Layer], name: str | None) -> tuple[list[Layer], Host | None]:
    """The layers with what is known of a joined host: the one called `name`, or which a layer names as the verifier;
    without a verifier, the one joined last. Raises SettingsError."""
    hosts = HostsFile()
    named = name or next((layer.values["verifier"] for layer in layers if layer.values.get("verifier")), None)
    try:
        joined = [host for host in hosts.all() if host.service != "drafter"]
    except JoinError as error:
        raise SettingsError(str(error)) from None
    host = next((each for each in reversed(joined) if named in (None, each.name)), None)
    if host is None:
        if name is not None:
            raise SettingsError(f"--host: {name} was not joined{advice(name, [each.name for each in joined])}")
        return layers, None

    def key(setting: str) -> str:
        return f"{hosts.path} [{host.name}] {setting}"

    known: dict[str, Any] = {"api_key": host.key}
    if not any(layer.values.keys() & _MEASURED for layer in layers):
        if host.mode == Mode.TARGET:
            known["mode"] = host.mode
        elif host.draft_model == NGRAM:
            known["backend"] = NGRAM
        elif host.draft_model:
            known["draft_model" if Path(host.draft_model).is_absolute() else "draft_hf"] = host.draft_model
    return [Layer("key", {"verifier": host.url}, key), *layers, Layer("key", known, key)], host


def keys_file(config: Path | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The setting `keys_file`, even if others are invalid. Raises SettingsError."""
    return first_path(lasting_layers(NAMES, config, environment, _warn), "keys_file")


def print_if_asked(parser: Parser, options: argparse.Namespace) -> argparse.Namespace:
    """The options. With --print-config, print the settings of the command, and exit."""
    if options.print_config:
        print(settings_table([action.dest for action in parser.actions()], [options.settings]))
        parser.exit()
    return options


def _flag(given: Mapping[str, Any], name: str) -> str:
    return flag(f"no_{name}" if given[name] is False else name)


def _warn(warning: str) -> None:
    print(f"drafter: {several_lines(warning)}", file=sys.stderr)


def _of_engine(layers: Sequence[Layer], flags: Mapping[str, Option]) -> list[Layer]:
    """The layers without the settings of engines that are not used.

    These are settings of an engine in a variable or in the file, where the engine that the same layer or a lower one
    names is overridden by a higher one; and lookup as the engine, for a command that runs a model.
    """
    if "backend" in flags and NGRAM not in flags["backend"].choices:
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


def lasting_flags(parser: argparse.ArgumentParser, *titles: str) -> None:
    for title in titles:
        group = parser.add_argument_group(title)
        add_options(group, ProgramOptions)
        if title == "verifier" and SERVICE not in titles:  # a service has an address of its own by that name
            group.add_argument(
                "--host",
                dest="host_name",
                metavar="NAME",
                help="a host that was joined, as 'drafter hosts' shows it (default: the one joined last)",
            )


def draft_flags(parser: argparse.ArgumentParser, *, modes: bool = False) -> argparse._ArgumentGroup:
    """Flags of drafting here, and of the draft model's engine. `modes`: include the choice of the mode."""
    draft = parser.add_argument_group("drafting")
    if modes:
        add_options(draft, Options, ["mode"])
        add_options(draft, ProgramOptions, ["remember"])
    add_options(draft, ProgramOptions, ["draft_model", "draft_hf", "draft_weights"])
    if modes:
        add_options(draft, Options, ["draft_n"])
    add_options(draft, ProgramOptions, ["branches", "policy", "translate", "draft_corpus"])
    add_options(draft, Options, ["lookup", "lockstep"])
    engine_flags(parser.add_argument_group("engine of the draft model"))
    return draft


def engine_flags(group: argparse._ArgumentGroup, **others: Mapping[str, Any]) -> None:
    """`others`: arguments that differ from the option's."""
    add_options(group, ProgramOptions, ["backend"], **others)
    for option in ENGINE.values():
        add_option(group, option)


def text_flags(parser: argparse.ArgumentParser, *, many: bool = False) -> None:
    """Flags of the text to write. `many`: include those of drafted and of many texts."""
    text = parser.add_argument_group("text")
    one_or_many = text.add_mutually_exclusive_group()
    one_or_many.add_argument("--prompt", metavar="TEXT", help="text to continue; without it, standard input is read")
    if many:
        words = "file with many prompts: one per line, or JSON Lines (*.jsonl)"
        one_or_many.add_argument("--prompt-file", type=path, metavar="FILE", help=words)
    add_options(text, Options)
    chat_flags(text)
    if many:
        prediction = text.add_mutually_exclusive_group()
        words = "the expected text: draft tokens are also taken from it where it fits"
        prediction.add_argument("--prediction", metavar="TEXT", help=words)
        words = "file with the expected text, for example a file that the model edits"
        prediction.add_argument("--prediction-file", type=path, metavar="FILE", help=words)
        group = parser.add_argument_group("many prompts")
        add_options(group, ProgramOptions, ["concurrency"])
        words = "write the results to this file, as JSON Lines; the same command again resumes an interrupted run"
        group.add_argument("--output", type=path, metavar="FILE", help=words)


def chat_flags(group: argparse._ArgumentGroup) -> None:
    add_options(group, ProgramOptions, ["chat"])
    group.add_argument("--system", metavar="TEXT", help="system message, with --chat")


def option_flags(parser: argparse.ArgumentParser, *titles: str) -> None:
    for title in titles:
        add_options(parser.add_argument_group(title), Options)


def output_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("output")
    group.add_argument("--stats", action=Switch, help="show all metrics at the end, not only the main ones")
    group.add_argument(
        "--json", action=Switch, help="print one JSON object per text, and nothing else, on standard output"
    )
    group.add_argument(
        "--stream",
        action=Switch,
        default=True,
        help="print tokens as they come, not the text at the end (default: yes)",
    )
    return group


def profile_flag(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--profile", type=path, metavar="DIR", help="record the run in this folder; see 'drafter report'"
    )
    group.add_argument("--profile-text", action=Switch, help="also record the text, not only its token ids")


def path(text: str) -> Path:
    """A path. An empty one is refused: it would be the current folder."""
    try:
        return setting_values.path(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def lengths(text: str) -> list[int]:
    """Draft lengths, in ascending order, from a list of numbers and ranges such as 1,2,4-8."""
    found: set[int] = set()
    for part in text.split(","):
        low, to, high = part.partition("-")
        first, last = whole(0, 64)(low), whole(0, 64)(high if to else low)
        if last < first:
            raise argparse.ArgumentTypeError(f"{part!r} ends before it begins")
        found.update(range(first, last + 1))
    return sorted(found)


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < low:
            raise argparse.ArgumentTypeError(f"must be at least {low}, got {value}")
        if high is not None and value > high:
            raise argparse.ArgumentTypeError(f"must be at most {high}, got {value}")
        return value

    return parse
