"""A front: a process that serves HTTP, and has the engine's process answer the requests.

It reads and writes the connections, checks keys, hosts and origins, reads and validates the bodies of the protocol's
own requests, counts requests and writes access lines. All else is the application of a verifier in one process, which
the engine's process runs: what a client sends, and what is sent to it, crosses a channel.

    python -m verifier_server.fronts.front CHANNEL LISTENING …    # numbers of inherited sockets
"""

import asyncio
import logging
import socket
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import SecretStr
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from specpair.command_line import start
from specpair.http_service.app import guarded, without_slash
from specpair.http_service.certificate import certificate_of
from specpair.http_service.connection import answered
from specpair.http_service.keys.access import VERIFIER, Caller
from specpair.http_service.keys.gate import Gate
from specpair.http_service.listening import ListeningServer, configured
from specpair.http_service.observability import logs
from specpair.http_service.observability.logs import current, note_session
from specpair.http_service.observability.requests import ObservedRequests, Routes
from specpair.http_service.options import LogFormat
from specpair.http_service.replies.json_replies import error_reply
from specpair.http_service.request_bodies import RequestBodies
from specpair.http_service.shutdown import EndedBySigterm, end_by_sigterm
from specpair.http_service.web_pages import Hosts, Origins, read_hosts, read_origins
from specpair.protocol import messages
from specpair.protocol.errors import SpecPairError
from verifier_server.fronts.channel import (
    ADDRESSES,
    SCOPE,
    Begun,
    Channel,
    ContextLength,
    Counted,
    Link,
    Part,
    PartsSent,
    Ready,
    Received,
    RequestOpened,
    StopFront,
    Unshared,
    Wanted,
    first_message,
)

_COUNT_EVERY = 0.1  # seconds between two messages with requests to count, at most
_TOLD = 4  # parts of a reply after which the engine's process is told that they were sent
_SESSION = b"x-session-id"


# Opens the channel: the arguments are those of `Channel`.
Connect = Callable[[Callable[[Any], object], Callable[[], object]], Awaitable[Link]]


class FrontOptions(NamedTuple):
    """What a front has to know of the verifier's settings; its first message."""

    api_key: SecretStr | None
    keys_file: Path | None
    insecure: bool
    cors_origins: str
    allowed_hosts: str
    keys: Mapping[str, str]  # the names by which the user gave these settings
    max_body_bytes: int
    body_timeout: float
    access_log: bool
    log_format: LogFormat
    strict: bool
    paths: Sequence[str]  # routes that are counted apart
    schemas: Mapping[str, type[messages.RequestModel]]  # of bodies that a front reads, by path
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None


class Front:
    """The application of a front."""

    def __init__(self, options: FrontOptions, connect: Connect, on_stop: Callable[[], object]) -> None:
        """`on_stop`: called when the front has to end."""
        self.on_unshared: Callable[[], object] = lambda: None  # shuts out other machines
        self._schemas, self._connect, self._on_stop = options.schemas, connect, on_stop
        self._gate = Gate.of(options.api_key, options.keys_file, options.insecure, VERIFIER)
        self._context = 0  # tokens; 0 while no model is loaded
        self._bodies = RequestBodies(options.max_body_bytes, options.body_timeout, lambda: self._context)
        self._channel: Link
        self._numbers = 0  # of the requests so far
        self._open: dict[int, _Exchange] = {}  # by number
        self._counted: list[tuple[str, int, float, str]] = []
        self._tasks = set[asyncio.Task[None]]()
        origins = Origins(read_origins(options.cors_origins), options.keys["cors_origins"])
        hosts = Hosts(read_hosts(options.allowed_hosts), options.keys["allowed_hosts"])
        routes = Routes(options.paths)
        self._served = ObservedRequests(
            guarded(self._relay, self._gate, origins, hosts),
            self._count,
            routes,
            options.access_log,
            strict=options.strict,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        try:
            await self._served(scope, receive, send)
        finally:
            answered(scope)

    async def connect(self) -> None:
        """Connect with the engine's process, and begin to serve."""
        self._channel = await self._connect(self._received, self._on_stop)
        self._channel.send(Ready())

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self.connect()
        watching = asyncio.create_task(self._gate.watch())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        watching.cancel()
        self._tell_counted()
        self._channel.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _relay(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the engine's process answer a request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close"})  # before it was accepted: the server replies with 403
            return
        caller, message = self._caller(scope), None
        schema = self._schemas.get(without_slash(scope)["path"]) if scope["method"] == "POST" else None
        if schema is not None:
            try:
                if isinstance(caller, SpecPairError):
                    raise caller
                message = await self._bodies.read(Request(scope, receive), partial(messages.parse, schema))
            except SpecPairError as error:
                await error_reply(error)(scope, receive, send)
                return
        self._numbers = number = self._numbers + 1
        exchange = self._open[number] = _Exchange(receive)
        told = {name: scope[name] for name in SCOPE} | {name: scope.get(name) for name in ADDRESSES}
        context = current()
        request_id = "" if context is None else context.request_id
        self._tell_counted()
        self._channel.send(RequestOpened(number, told, caller, request_id, message))
        try:
            await self._send(number, exchange, send)
        finally:
            del self._open[number]

    def _caller(self, scope: Scope) -> Caller | SpecPairError:
        try:
            return self._gate.identify(scope)
        except SpecPairError as error:
            return error

    async def _send(self, number: int, exchange: "_Exchange", send: Send) -> None:
        """Send the reply to the client."""
        told, more = 0, True
        while more:
            found: Begun | Part = await exchange.next()
            if isinstance(found, Begun):
                note_session(next((value.decode() for name, value in found.headers if name == _SESSION), ""))
                await send({"type": "http.response.start", "status": found.status, "headers": found.headers})
            more = found.more
            await send({"type": "http.response.body", "body": found.body, "more_body": more})
            told += more
            if told == _TOLD:
                self._channel.send(PartsSent(number, told))
                told = 0

    def _received(self, message: Any) -> None:
        if isinstance(message, Begun | Part):
            if (exchange := self._open.get(message.number)) is not None:  # its client may have left
                exchange.put(message)
        elif isinstance(message, Wanted):
            task = asyncio.create_task(self._pass_on(message.number))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif isinstance(message, ContextLength):
            self._context = message.tokens
        elif isinstance(message, Unshared):
            self.on_unshared()
        elif isinstance(message, StopFront):
            self._on_stop()

    async def _pass_on(self, number: int) -> None:
        """Pass on what the client of a request sends next."""
        if (exchange := self._open.get(number)) is not None:
            self._channel.send(Received(number, await exchange.receive()))

    def _count(self, route: str, status: int, seconds: float, key: str) -> None:
        if not self._counted:
            asyncio.get_running_loop().call_later(_COUNT_EVERY, self._tell_counted)
        self._counted.append((route, status, seconds, key))

    def _tell_counted(self) -> None:
        if self._counted:
            counted, self._counted = self._counted, []
            self._channel.send(Counted(counted))


class _Exchange:
    """A request that the engine's process answers: the parts of its reply, in order."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self._parts: deque[Begun | Part] = deque()
        self._waiting: asyncio.Future[None] | None = None

    def put(self, part: Begun | Part) -> None:
        self._parts.append(part)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def next(self) -> Begun | Part:
        if not self._parts:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._parts.popleft()


def main() -> None:
    channel, *listening = map(int, sys.argv[1:])
    end = socket.socket(fileno=channel)
    options: FrontOptions = first_message(end)
    logs.configure(options.log_format)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # the engine's process says where the verifier listens
    certificate = certificate_of(options.ssl_certfile, options.ssl_keyfile, lambda name: name)
    tls = {} if certificate is None else certificate.options

    def stop() -> None:
        server.should_exit = True

    front = Front(options, partial(Channel.over, end), stop)
    server = ListeningServer(configured(front, **tls), certificate)
    front.on_unshared = server.shut_out_others
    with suppress(KeyboardInterrupt, EndedBySigterm):
        start.catch_interrupts()
        end_by_sigterm()
        server.run([socket.socket(fileno=number) for number in listening])


if __name__ == "__main__":
    main()
