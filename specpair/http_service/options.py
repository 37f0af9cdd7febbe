"""`ServiceOptions`: address, access control and logs of a service, at both ends."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pydantic import SecretStr

from specpair.command_line.parser import KEY
from specpair.http_service.keys.key_file import complaint
from specpair.http_service.web_pages import read_hosts, read_origins
from specpair.options.option import option

LogFormat = Literal["text", "json"]
SERVICE, ACCESS = "service", "who may use it"  # groups in a command's help
ROUTER = "behind a router"


@dataclass(frozen=True, kw_only=True)
class BodyOptions:
    """Limits of request bodies, of services that have settings for them."""

    max_body_bytes: int = option(4 * 1024 * 1024, "maximum size of a request body, in bytes", ge=1024, group=SERVICE)
    body_timeout: float = option(
        10.0,
        "seconds in which a request body must arrive, plus one second for each 32 KiB",
        gt=0,
        group=SERVICE,
        placeholder="SECONDS",
    )


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Settings of a service. Flags, variables and keys of both ends are made from these fields."""

    host: str = option("127.0.0.1", "address to listen on", group=SERVICE, placeholder="ADDRESS")
    port: int = option(8000, "port to listen on; 0: any free port", ge=0, le=65535, group=SERVICE)
    log_format: LogFormat = option(
        "text", "log lines as text or as JSON objects", choices=get_args(LogFormat), group=SERVICE
    )
    access_log: bool = option(
        False, "log a line for each request, except health checks and metrics scrapes", group=SERVICE
    )
    metrics_open: bool = option(False, "serve /metrics without a key", group=SERVICE)
    ssl_certfile: Path | None = option(
        None,
        "certificate, to serve HTTPS; it is read again when the file changes",
        usually="none",
        group=ACCESS,
        placeholder="FILE",
    )
    ssl_keyfile: Path | None = option(
        None,
        "the certificate's private key, unless the certificate's file has it",
        usually="none",
        group=ACCESS,
        placeholder="FILE",
    )
    share: bool = option(
        False,
        "serve other machines over TLS, with a key for each: prints the command by which one joins",
        group=ACCESS,
    )
    keys_file: Path | None = option(
        None,
        "file with the hashes of several API keys; the command 'key new NAME' adds a key",
        group=ACCESS,
        placeholder="FILE",
    )
    insecure: bool = option(
        False, "serve every address without a key, not only loopback and private networks", group=ACCESS
    )
    allowed_hosts: str = option(
        "",
        "host names that the service answers to without a key, besides the names of its machine; "
        "separated by commas; *: all",
        usually="none",
        check=read_hosts,
        group=ACCESS,
        placeholder="NAMES",
    )
    cors_origins: str = option(
        "",
        "web origins whose pages, apps or extensions may use the service; separated by commas; *: all",
        usually="none",
        check=read_origins,
        group=ACCESS,
        placeholder="URLS",
    )


def check_keys(options: ServiceOptions, *names: str) -> None:
    """Raise ValueError for a key that no header can carry, and for callers' keys if `insecure` is set.

    `names`: of the options that are keys. The callers' own is `api_key`.
    """
    for name in names:
        key = getattr(options, name)
        if key is not None and (wrong := complaint(key.get_secret_value())) is not None:
            raise ValueError(f"{name}: {wrong}")
    for name in ("api_key", "keys_file"):
        if options.insecure and getattr(options, name) is not None:
            raise ValueError(f"insecure: it means no key is needed, but {name} is set: leave one of them out")


@dataclass(frozen=True, kw_only=True)
class NodeOptions(ServiceOptions):
    """Settings of a service that may stand behind a router."""

    router: str | None = option(
        None, "address of a router to register with", usually="none", group=ROUTER, placeholder="URL"
    )
    router_key: SecretStr | None = option(
        None, "the router's --register-key", usually="none", group=ROUTER, placeholder=KEY
    )
    advertise: str | None = option(
        None, "address at which the router reaches this service", usually="none", group=ROUTER, placeholder="URL"
    )
    weight: float = option(
        1.0,
        "how many texts this service takes, in relation to other nodes",
        gt=0,
        le=1e6,
        group=ROUTER,
        placeholder="X",
    )
    hourly_price: float | None = option(
        None,
        "price of an hour of this service; the router computes the price of a token",
        usually="unknown",
        ge=0,
        le=1e9,
        group=ROUTER,
        placeholder="X",
    )
