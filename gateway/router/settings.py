"""The settings of the router, read from its flags, its variables and `specpair.toml`."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr, model_validator

from gateway.balancing import DEFAULT, LOOK_EVERY, POLICIES, check_policy
from gateway.router.connections import node_url
from gateway.router.messages import NodeSpec, read_nodes
from specpair.command_line.layers import (
    Layer,
    LayeredSettings,
    Names,
    first_path,
    lasting_layers,
    settings_model,
    settings_table,
)
from specpair.command_line.options import add_option
from specpair.command_line.parser import KEY, OneOf, Parser, flag
from specpair.command_line.setting_values import SettingsError
from specpair.http_service.options import ACCESS, SERVICE, BodyOptions, ServiceOptions, check_keys
from specpair.options.option import like, option, options_of, settings_of

NODES = "nodes"  # group in the command's help


class _NamedOrImported(OneOf):
    """The names of policies. One of the user's own, as `module:Class`, is looked at by `check_policy`."""

    def __contains__(self, value: object) -> bool:
        return super().__contains__(value) or (isinstance(value, str) and ":" in value)


@dataclass(frozen=True, kw_only=True)
class RouterOptions(ServiceOptions):
    """Flags, variables and keys are made from these fields, in groups of the help."""

    node: tuple[str, ...] = option(
        (),
        "address of a verifier or of a 'drafter serve'",
        item=node_url,
        items=tuple,
        group=NODES,
        placeholder="URL",
    )
    nodes_file: Path | None = option(
        None,
        "TOML file with nodes: tables [[nodes]] with url, and optionally model, weight, hourly_price",
        usually="none",
        group=NODES,
        placeholder="FILE",
    )
    policy: str = option(
        DEFAULT,
        "how to choose the node for a new text; module:Class names a policy of your own",
        choices=_NamedOrImported(tuple(POLICIES)),
        check=check_policy,
        group=NODES,
    )
    look_every: float = option(
        LOOK_EVERY, "time between two health checks of a node", gt=0, le=60, group=NODES, placeholder="SECONDS"
    )
    node_key: SecretStr | None = option(
        None,
        "the nodes' API key, sent to them instead of the caller's key (or ROUTER_NODE_KEY)",
        usually="the caller's key is passed on",
        group=NODES,
        placeholder=KEY,
    )
    register_key: SecretStr | None = option(
        None,
        "key that nodes need to register (or ROUTER_REGISTER_KEY)",
        usually="no node can register",
        group=NODES,
        placeholder=KEY,
    )
    max_sessions: int = option(
        65_536, "sessions whose node the router remembers; for others, the router asks the nodes", ge=1, group=NODES
    )
    api_key: SecretStr | None = option(
        None, "API key that callers must send (or ROUTER_API_KEY)", group=ACCESS, placeholder=KEY
    )
    port: int = like(ServiceOptions, "port", default=8090)
    drain: float = option(
        20.0,
        "how long running requests have to finish after SIGTERM",
        ge=0,
        le=1e6,
        group=SERVICE,
        placeholder="SECONDS",
    )
    max_body_bytes: int = like(BodyOptions, "max_body_bytes")
    body_timeout: float = like(BodyOptions, "body_timeout")


OPTIONS = settings_of(RouterOptions, "router")
NODE = options_of(RouterOptions)["node"]  # a flag only, since it may be given several times


_log = logging.getLogger("gateway.router")
_NAMES = Names("router", OPTIONS)

if TYPE_CHECKING:

    class _Options(RouterOptions, LayeredSettings): ...

else:
    _Options = settings_model(LayeredSettings, OPTIONS)


class RouterSettings(_Options):
    """The lasting settings of a router: `OPTIONS`."""

    if TYPE_CHECKING:

        def __init__(self, **values: object) -> None: ...

    @model_validator(mode="after")
    def _consistent(self) -> "RouterSettings":
        check_keys(self, "api_key", "node_key", "register_key")
        return self

    @classmethod
    def usual_key(cls, name: str) -> str:
        """The flag of a setting that was not given."""
        return flag(name)

    @property
    def looking_key(self) -> str | None:
        """The key with which the router probes nodes: the nodes' key, or a key that both have."""
        key = self.node_key or self.api_key
        return None if key is None else key.get_secret_value()


def flags_parser() -> Parser:
    """The parser of `specpair router`."""
    parser = Parser(
        "specpair router",
        usage="[FLAGS]\nrouter key new | list | revoke   (API keys: 'specpair router key --help')",
        description="Offer several verifiers, or several 'drafter serve', under one address: each text goes to a "
        "node that is ready. Every setting except --node is also an environment variable and a key in "
        "specpair.toml: --node-key is ROUTER_NODE_KEY, and node_key in the table [router]. A flag "
        "overrides the variable, and the variable overrides the file.",
        examples=(
            "specpair router --node http://10.0.0.1:8000 --node http://10.0.0.2:8000",
            "specpair router --nodes-file nodes.toml --policy least_queue_time --host 0.0.0.0 --api-key KEY",
        ),
        commands=("key",),
    )
    parser.add_config_flags()
    groups = {title: parser.add_argument_group(title) for title in (NODES, ACCESS, SERVICE)}
    for each in (NODE, *OPTIONS.values()):
        add_option(groups[each.about.group], each)
    return parser


def from_flags(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> tuple[RouterSettings, list[NodeSpec]]:
    """Settings, and the nodes that stand in a list. Raises SettingsError. With --help, --version or --print-config,
    prints it and exits."""
    parser = flags_parser()
    options = parser.parse(arguments, optional=OPTIONS)
    given = {name: value for name, value in vars(options).items() if name in OPTIONS}
    layers = [Layer("flag", given, flag), *_lasting(options.config, environment)]
    settings = RouterSettings.from_layers(layers)
    if options.print_config:
        print(settings_table([action.dest for action in parser.actions()], [settings]))
        parser.exit()
    listed = {url: NodeSpec(url) for url in options.node}
    if settings.nodes_file is not None:
        listed |= {spec.url: spec for spec in read_nodes(settings.nodes_file)}
    if not listed and settings.register_key is None:
        raise SettingsError("there is no node: give --node or --nodes-file, or --register-key for nodes that register")
    return settings, [*listed.values()]


def keys_file(config: Path | None, environment: Mapping[str, str] = os.environ) -> Path | None:
    """The setting `keys_file`, whatever the other settings are. Raises SettingsError."""
    return first_path(_lasting(config, environment), "keys_file")


def _lasting(config: Path | None, environment: Mapping[str, str]) -> list[Layer]:
    return lasting_layers(_NAMES, config, environment, lambda warning: _log.warning("%s", warning))
