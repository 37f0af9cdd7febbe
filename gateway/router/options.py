"""`RouterOptions`: the settings of the router, each said once."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from gateway.balancing.named import DEFAULT, LOOK_EVERY, check_policy
from gateway.balancing.policies import POLICIES
from gateway.router.upstream.pool import node_url
from specpair.command_line.parser import KEY, OneOf
from specpair.http_service.options import ACCESS, SERVICE, BodyOptions, ServiceOptions
from specpair.options.option import like, option, options_of, settings_of

NODES = "nodes"  # group in the command's help


class _OrOwn(OneOf):
    """The names of policies. One of the user's own, as `module:Class`, is looked at by `check_policy`."""

    def __contains__(self, value: object) -> bool:
        return super().__contains__(value) or (isinstance(value, str) and ":" in value)


@dataclass(frozen=True, kw_only=True)
class RouterOptions(ServiceOptions):
    """Flags, variables and keys are made from these fields, in groups of the help."""

    node: tuple[str, ...] = option(
        (),
        "address of a verifier, or of a drafter that serves",
        item=node_url,
        items=tuple,
        group=NODES,
        placeholder="URL",
    )
    nodes_file: Path | None = option(
        None,
        "file with nodes in TOML: tables [[nodes]] with url, and model, weight, hourly_price",
        usually="none",
        group=NODES,
        placeholder="FILE",
    )
    policy: str = option(
        DEFAULT,
        "which node a new text goes to; one of your own: module:Class",
        choices=_OrOwn(tuple(POLICIES)),
        check=check_policy,
        group=NODES,
    )
    look_every: float = option(
        LOOK_EVERY, "how often each node is asked for its health", gt=0, le=60, group=NODES, placeholder="SECONDS"
    )
    node_key: SecretStr | None = option(
        None,
        "key of the nodes, sent in place of the callers' (or ROUTER_NODE_KEY)",
        usually="the callers' keys are passed on",
        group=NODES,
        placeholder=KEY,
    )
    register_key: SecretStr | None = option(
        None,
        "key with which nodes register (or ROUTER_REGISTER_KEY)",
        usually="none can register",
        group=NODES,
        placeholder=KEY,
    )
    max_sessions: int = option(
        65_536, "sessions whose node is remembered; others are found by asking", ge=1, group=NODES
    )
    api_key: SecretStr | None = option(
        None, "key that callers must send (or ROUTER_API_KEY)", group=ACCESS, placeholder=KEY
    )
    port: int = like(ServiceOptions, "port", default=8090)
    drain: float = option(
        20.0,
        "how long requests under way may take on after SIGTERM",
        ge=0,
        le=1e6,
        group=SERVICE,
        placeholder="SECONDS",
    )
    max_body_bytes: int = like(BodyOptions, "max_body_bytes")
    body_timeout: float = like(BodyOptions, "body_timeout")


OPTIONS = settings_of(RouterOptions, "router")
NODE = options_of(RouterOptions)["node"]  # a flag only, since it may be given several times
