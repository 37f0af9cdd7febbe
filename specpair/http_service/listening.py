"""Binds and serves a service's sockets, before a model loads: a command ends at once if its port is in use."""

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

import uvicorn
from starlette.types import ASGIApp

from specpair.command_line import start
from specpair.command_line.setting_sources import PROGRAMS
from specpair.command_line.setting_values import SettingsError
from specpair.http_service.accepting import Acceptor
from specpair.http_service.app import App
from specpair.http_service.certificate import Certificate
from specpair.http_service.connection import Connection
from specpair.http_service.observability import logs
from specpair.http_service.sharing.joining import Guests
from specpair.http_service.sharing.lan import announced
from specpair.http_service.sharing.link import address_text
from specpair.http_service.sharing.share import Share
from specpair.http_service.shutdown import EndedBySigterm, end_by_sigterm

KEEP_ALIVE = 75  # seconds; longer than clients keep idle connections, so that the client closes first
PATIENCE = 5  # seconds that requests have to finish at shutdown; a stream of tokens may never finish
HANDSHAKE = 5.0  # seconds for a TLS handshake; asyncio's own limit is a minute, and clients wait as long as this

_log = logging.getLogger("uvicorn.error")  # the logger on which uvicorn says where it listens


def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address of `host`, empty: of this machine; port 0 takes a free one. Raises
    SettingsError."""
    with ExitStack() as on_failure:
        sockets: list[socket.socket] = []
        try:
            found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, address in dict.fromkeys((family, address) for family, *_, address in found):
                if sockets and port == 0:  # all listen on one port
                    address = address[0], sockets[0].getsockname()[1], *address[2:]
                # It listens at once: else a second process could bind the port, too.
                sockets.append(on_failure.enter_context(socket.create_server(address, family=family)))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise SettingsError(f"port {port} is in use: choose another with --port") from None
            reason = (error.strerror or str(error)).partition(" (while ")[0]  # `create_server` adds the address
            raise SettingsError(f"cannot listen on {host}, port {port}: {reason}: see --host and --port") from None
        on_failure.pop_all()
    return sockets


def configured(app: ASGIApp, http: type[Connection] = Connection, **more: Any) -> uvicorn.Config:
    """The uvicorn configuration of a service. `more`: further settings."""
    return uvicorn.Config(
        app,
        http=http,
        ws="none",
        proxy_headers=False,  # uvicorn would trust X-Forwarded-For from every process on this machine
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=PATIENCE,
        access_log=False,  # `ObservedRequests` writes the access lines
        log_config=None,  # `logs.configure` has set the format of all loggers
        workers=1,
        **more,
    )


def shown_address(bound: socket.socket) -> str:
    """The host and port that a socket listens on, as in a URL."""
    return address_text(*bound.getsockname()[:2])


class Accepting(Protocol):
    """Processes that accept a service's connections."""

    async def start(self, listening: Sequence[socket.socket]) -> None:
        """Begin to accept."""

    async def stop(self, at_once: Callable[[], bool]) -> None:
        """End them, after their requests unless `at_once()`."""

    def shut_out_others(self) -> None:
        """Serve this machine only, from now on."""


class ListeningServer(uvicorn.Server):
    """uvicorn on bound sockets: logs their addresses, which uvicorn omits for them, limits the time of a TLS handshake,
    and renews the certificate."""

    def __init__(
        self,
        config: uvicorn.Config,
        certificate: Certificate | None,
        handshake: float = HANDSHAKE,
        *,
        accepting: Accepting | None = None,
    ) -> None:
        """`handshake`: seconds in which a client must have completed it.
        `accepting`: what accepts the connections instead of this process.
        """
        super().__init__(config)
        self._certificate, self._handshake, self._accepting = certificate, handshake, accepting
        self._renewing: asyncio.Task[None] | None = None
        self._acceptor: Acceptor | None = None  # of a service over TLS

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        context, scheme = self.config.ssl, "http" if self.config.ssl is None else "https"
        elsewhere = self._accepting is not None
        await super().startup(sockets if context is None and not elsewhere else [])
        if self._accepting is not None:
            await self._accepting.start(sockets or [])
        elif context is not None:
            connection = cast(type[Connection], self.config.http_protocol_class)
            make = partial(connection, self.config, self.server_state, self.lifespan.state)
            self._acceptor = Acceptor(make, context, self._handshake)
        for bound in sockets or ():
            if self._acceptor is not None:
                self._acceptor.accept_from(bound, self.config.backlog)
            _log.info("Uvicorn running on %s://%s (Press CTRL+C to quit)", scheme, shown_address(bound))
        if self._certificate is not None and context is not None:
            self._renewing = asyncio.create_task(self._certificate.renew(context))

    def shut_out_others(self) -> None:
        """Serve this machine only, from now on. The service must be one over TLS."""
        for each in (self._acceptor, self._accepting):
            if each is not None:
                each.shut_out_others()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        if self._accepting is not None:
            await self._accepting.stop(lambda: self.force_exit)
        if self._acceptor is not None:
            await self._acceptor.close()
        await super().shutdown(sockets)


def serve(
    app: App,
    sockets: list[socket.socket],
    certificate: Certificate | None,
    accepting: Accepting | None = None,
    **more: Any,
) -> None:
    """Serve on these sockets until a signal ends it. `accepting`: as for `ListeningServer`. `more`: further settings of
    uvicorn."""
    if certificate is not None:
        app.metrics.certificate_ends(certificate)
        more |= certificate.options
    share = None if app.gate.guests is None else app.gate.guests.share
    # uvicorn raises the signal again after its shutdown.
    with announced(share, socket.gethostname()), suppress(KeyboardInterrupt, EndedBySigterm):
        start.catch_interrupts()
        end_by_sigterm()
        server = ListeningServer(configured(app, **more), certificate, accepting=accepting)
        app.gate.on_unshared = server.shut_out_others
        server.run(sockets)


class ServedApp(NamedTuple):
    app: App
    host: str
    port: int
    certificate: Certificate | None = None
    share: Share | None = None
    status: Callable[[], int] = lambda: 0  # the command's exit status once it was stopped
    accepting: Accepting | None = None


def run(name: str, make: Callable[[], ServedApp]) -> int:
    """Run a command that serves until it is stopped. Returns its exit status: 2 for bad settings, 1 when the port is in
    use.

    `name`: the command's, to stand before an error.
    `make`: reads the settings, and configures the logs by them. Raises SettingsError.
    """
    logs.configure("text")  # until the settings are read
    try:
        served = make()
    except SettingsError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    try:
        sockets = bind_sockets(served.host, served.port)
    except SettingsError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    if served.share is not None:
        welcome(served.app, served.share, sockets)
    serve(served.app, sockets, served.certificate, served.accepting)
    return served.status()


def welcome(app: App, share: Share, sockets: list[socket.socket]) -> None:
    """Let guests join a service, and show on a terminal how."""
    share.port = sockets[0].getsockname()[1]
    guests = app.gate.guests = Guests(share, socket.gethostname())
    app.metrics.guests(guests)
    program = PROGRAMS[share.service]
    if not sys.stderr.isatty():  # the link must not get into a log
        _log.info("shared; how a machine joins is shown by: %s invite NAME", program)
        return
    link, *others = share.links(share.invitations.invite())
    lines = ["On the other machine, once, within an hour:", f"    drafter join {link}"]
    if others:
        lines.append(f"also reached at {', '.join(each.host for each in others)}")
    lines.append(f"another machine: {program} invite NAME  ·  {program} key list | revoke NAME")
    print("\n".join(lines), file=sys.stderr)
