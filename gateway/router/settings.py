"""Reads the settings of the router from its flags, its variables and `specpair.toml`. An error names the bad one."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import model_validator

from gateway.router.nodes.node import NodeSpec
from gateway.router.nodes.node_file import read_nodes
from gateway.router.options import NODE, NODES, OPTIONS, RouterOptions
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
from specpair.command_line.options import add_option
from specpair.command_line.parser import Parser, flag
from specpair.http_service.options import ACCESS, SERVICE, check_keys

_log = logging.getLogger("gateway.router")
_NAMES = names_of("router", OPTIONS)

if TYPE_CHECKING:

    class _Options(RouterOptions, LayeredSettings): ...

else:
    _Options = settings_model(LayeredSettings, OPTIONS)


class Settings(_Options):
    """The settings of a router that last: `OPTIONS`."""

    if TYPE_CHECKING:

        def __init__(self, **values: object) -> None: ...

    @model_validator(mode="after")
    def _consistent(self) -> "Settings":
        check_keys(self, "api_key", "node_key", "register_key")
        return self

    @classmethod
    def usual_key(cls, name: str) -> str:
        """The flag of a setting that was not given."""
        return flag(name)

    @property
    def looking_key(self) -> str | None:
        """The key with which the router asks nodes for their health: theirs, or the one that both have."""
        key = self.node_key or self.api_key
        return None if key is None else key.get_secret_value()


def flags_parser() -> Parser:
    """The parser of `specpair router`."""
    parser = Parser(
        "specpair router",
        usage="[FLAGS]\nrouter key new | list | revoke   (API keys: 'specpair router key --help')",
        description="Stand in front of several verifiers, and of drafters that serve: one address, which knows who is "
        "ready. Every setting but --node is also an environment variable and a key in specpair.toml: --node-key is "
        "ROUTER_NODE_KEY, and node_key in the table [router]. A flag overrides its variable, a variable the file.",
        examples=(
            "specpair router --node http://10.0.0.1:8000 --node http://10.0.0.2:8000",
            "specpair router --nodes-file nodes.toml --policy least_queue_time --host 0.0.0.0 --api-key KEY",
        ),
        commands=("key",),
    )
    parser.add_config_flags()
    groups = {title: parser.add_argument_group(title) for title in (NODES, ACCESS, SERVICE)}
    for option in (NODE, *OPTIONS.values()):
        add_option(groups[option.about.group], option)
    return parser


def from_flags(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> tuple[Settings, list[NodeSpec]]:
    """Settings, and the nodes that stand in a list. Raises SettingsError. With --help, --version or --print-config,
    prints it and exits."""
    parser = flags_parser()
    options = parser.parse(arguments, optional=OPTIONS)
    given = {name: value for name, value in vars(options).items() if name in OPTIONS}
    layers = [Layer("flag", given, flag), *_lasting(options.config, environment)]
    settings = Settings.from_layers(layers)
    if options.print_config:
        print(settings_table([action.dest for action in parser.actions()], [settings]))
        parser.exit()
    listed = {url: NodeSpec(url) for url in options.node}
    if settings.nodes_file is not None:
        listed |= {spec.url: spec for spec in read_nodes(settings.nodes_file)}
    if not listed and settings.register_key is None:
        raise SettingsError("no node: name some with --node or --nodes-file, or let them register with --register-key")
    return settings, [*listed.values()]


def keys_file(config: Path | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The setting `keys_file`, whatever the other settings are. Raises SettingsError."""
    return first_path(_lasting(config, environment), "keys_file")


def _lasting(config: Path | None, environment: Mapping[str, str]) -> list[Layer]:
    return lasting_layers(_NAMES, config, environment, lambda warning: _log.warning("%s", warning))
