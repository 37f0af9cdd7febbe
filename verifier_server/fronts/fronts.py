"""The fronts of a verifier: starts their processes, and answers their requests with the verifier's application."""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from starlette.types import ASGIApp, Message

from specpair.child_processes.children import child
from specpair.http_service import hints
from specpair.http_service.app import App
from specpair.http_service.keys.gate import CALLER, Gate
from specpair.http_service.observability.logs import RequestContext, enter
from specpair.http_service.request_bodies import PARSED
from verifier_server.api.operations import SCHEMAS
from verifier_server.fronts.channel import (
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
    packed,
)
from verifier_server.fronts.front import FrontOptions
from verifier_server.settings import ListenAddress, Settings

AHEAD = 16  # parts of a reply that a front may have before it has sent them
_STARTS = 3  # of fronts in a row that may fail
_LOOK = 0.1  # seconds between two looks whether to end at once
_log = logging.getLogger("specpair.verifier")

# Runs a front, with its end of the channel and the numbers of the listening sockets, while the context lasts.
Launch = Callable[[socket.socket, Sequence[int]], AbstractContextManager[object]]


def process(end: socket.socket, listening: Sequence[int]) -> AbstractContextManager[object]:
    """A front in a process of its own."""
    numbers = [end.fileno(), *listening]
    return child("-m", "verifier_server.fronts.front", *map(str, numbers), descriptors=numbers)


class Fronts:
    """All fronts. Used in the event loop of the engine's process."""

    def __init__(
        self,
        count: int,
        options: FrontOptions,
        app: ASGIApp,
        gate: Gate,
        context: Callable[[], int],
        counted: Callable[[str, int, float, str], object],
        on_failure: Callable[[], object],
        launch: Launch = process,
    ) -> None:
        """`app`: the application without its layers, which the fronts have.
        `context()`: tokens that the context holds; 0 while no model is loaded.
        `counted(route, status, seconds, key)`: counts a request.
        `on_failure`: called when a front cannot be started: the verifier cannot be reached then.
        """
        self.options = options
        self._count, self._app = count, app
        self._gate, self._context = gate, context
        self._counted, self._on_failure, self._launch = counted, on_failure, launch
        self._fronts = set[FrontRequests]()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._tasks = set[asyncio.Task[None]]()

    def requests(self) -> "FrontRequests":
        """The requests of a new front."""
        return FrontRequests(self._app, self._gate, self._counted, self.options.strict)

    async def start(self, listening: Sequence[socket.socket]) -> None:
        """Start the fronts, and wait until each serves. One that ends is started anew, until `stop`."""
        self._loop = asyncio.get_running_loop()
        numbers = [each.fileno() for each in listening]
        ready = [asyncio.get_running_loop().create_future() for _ in range(self._count)]
        for each in ready:
            task = asyncio.create_task(self._keep(numbers, each))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await asyncio.gather(*ready)

    async def stop(self, at_once: Callable[[], bool] = lambda: False) -> None:
        """Have all fronts end after their requests. `at_once()`: whether to end them now."""
        self._stopping = True
        self._tell(StopFront())
        while self._tasks and not at_once():
            await asyncio.wait(self._tasks, timeout=_LOOK)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def loaded(self) -> None:
        """Tell the fronts how many tokens the loaded model's context holds. May be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: self._tell(ContextLength(self._context())))

    def shut_out_others(self) -> None:
        self._tell(Unshared())

    def _tell(self, message: Any) -> None:
        for front in self._fronts:
            front.send(message)

    async def _keep(self, numbers: Sequence[int], ready: asyncio.Future[None]) -> None:
        """Run one front after the other. `ready`: is set once the first one serves, or none can be started."""
        failed = 0  # starts in a row
        while not self._stopping:
            front = self.requests()
            serving = asyncio.create_task(self._note(front.ready, ready))
            await self._run(front, numbers)
            serving.cancel()
            failed = 0 if front.ready.is_set() else failed + 1
            if failed == _STARTS:
                _log.error("no front can be started: the verifier ends")
                self._on_failure()
                break
            if not self._stopping:
                _log.error("a front ended unexpectedly: another one takes its place")
        if not ready.done():
            ready.set_result(None)

    async def _note(self, serves: asyncio.Event, ready: asyncio.Future[None]) -> None:
        await serves.wait()
        if not ready.done():
            ready.set_result(None)

    async def _run(self, front: "FrontRequests", numbers: Sequence[int]) -> None:
        """Run a front until it ends, and answer its requests."""
        lost = asyncio.Event()
        ours, theirs = socket.socketpair()
        with theirs:
            ours.sendall(packed(self.options))
            running = ExitStack()
            running.enter_context(self._launch(theirs, numbers))
        try:
            channel = await Channel.over(ours, front.received, lost.set)
            front.connected(channel)
            self._fronts.add(front)
            front.send(ContextLength(self._context()))
            if self._stopping:
                front.send(StopFront())
            await lost.wait()
        finally:
            self._fronts.discard(front)
            await front.close()
            await asyncio.to_thread(running.close)


def fronts_of(
    app: App, settings: Settings, address: ListenAddress, on_failure: Callable[[], object], launch: Launch = process
) -> Fronts:
    """The fronts of the verifier that `app` serves. `on_failure`, `launch`: as for `Fronts`."""
    service = app.state.service
    same = ["api_key", "keys_file", "insecure", "cors_origins", "allowed_hosts", "max_body_bytes", "body_timeout"]
    same += ["access_log", "log_format", "strict"]
    options = FrontOptions(
        keys={name: settings.key(name) for name in ("cors_origins", "allowed_hosts")},
        paths=app.paths,
        schemas=SCHEMAS,
        ssl_certfile=address.ssl_certfile,
        ssl_keyfile=address.ssl_keyfile,
        **{name: getattr(settings, name) for name in same},
    )
    return Fronts(
        address.processes,
        options,
        app.unlayered,
        app.gate,
        context=service.context_length,
        counted=service.metrics.request,
        on_failure=on_failure,
        launch=launch,
    )


class FrontRequests:
    """The requests of one front, in the engine's process."""

    def __init__(
        self, app: ASGIApp, gate: Gate, counted: Callable[[str, int, float, str], object], strict: bool
    ) -> None:
        """The arguments are those of `Fronts`. `strict`: whether hints are refused."""
        self._app, self._gate, self._counted, self._strict = app, gate, counted, strict
        self._link: Link | None = None
        self._requests: dict[int, _Relayed] = {}  # by number
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.ready = asyncio.Event()  # set once the front serves

    def connected(self, link: Link) -> None:
        """Begin to answer over this link."""
        self._link = link

    def send(self, message: Any) -> None:
        if self._link is not None:
            self._link.send(message)

    async def close(self) -> None:
        """Cancel all requests, as if their clients had left: the front is gone."""
        if self._link is not None:
            self._link.close()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def received(self, message: Any) -> None:
        """Take a message of the front."""
        if isinstance(message, RequestOpened):
            self._open(message)
        elif isinstance(message, Received):
            if (request := self._requests.get(message.number)) is not None:
                request.received(message.message)
        elif isinstance(message, PartsSent):
            if (request := self._requests.get(message.number)) is not None:
                request.sent(message.parts)
        elif isinstance(message, Counted):
            for each in message.requests:
                self._counted(*each)
        elif isinstance(message, Ready):
            self.ready.set()

    def _open(self, opened: RequestOpened) -> None:
        number = opened.number
        self._requests[number] = request = _Relayed(number, self.send, self._strict)
        self._tasks[number] = task = asyncio.create_task(self._answer(opened, request))
        task.add_done_callback(lambda _: self._over(number))

    def _over(self, number: int) -> None:
        del self._requests[number], self._tasks[number]

    async def _answer(self, opened: RequestOpened, request: "_Relayed") -> None:
        scope = {"type": "http", "asgi": {"version": "3.0"}, "state": {}, CALLER: opened.caller, **opened.scope}
        if opened.message is not None:
            scope[PARSED] = opened.message
        enter(RequestContext(opened.request_id))
        hints.enter(request.hints)
        try:
            with self._gate.counted(scope):
                await self._app(scope, request.receive, request.send)
        except Exception:
            _log.exception("a fault in a request")
        finally:
            request.end()


class _Relayed:
    """A request of a front, as an application of ASGI sees it."""

    def __init__(self, number: int, tell: Callable[[Any], None], strict: bool) -> None:
        """`tell`: sends a message to the front. `strict`: whether hints are refused."""
        self.hints = hints.Hints(strict)
        self._number, self._tell = number, tell
        self._came: deque[Message] = deque()
        self._wanted: asyncio.Future[None] | None = None  # whether the front was asked for more
        self._head: Message | None = None  # that is sent with the next part of the body
        self._complete = False
        self._ahead = 0  # parts that the front has not sent yet
        self._room = asyncio.Event()

    async def receive(self) -> Message:
        while not self._came:
            if self._wanted is None or self._wanted.done():
                self._wanted = asyncio.get_running_loop().create_future()
                self._tell(Wanted(self._number))
            await asyncio.shield(self._wanted)
        return self._came.popleft()

    def received(self, message: Message) -> None:
        self._came.append(message)
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._head = message
            asyncio.get_running_loop().call_soon(self._send_head)
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        self._complete = not more
        if self._head is not None:
            self._begin(body, more)
        else:
            self._tell(Part(self._number, body, more))
        if more:
            self._ahead += 1
            while self._ahead >= AHEAD:
                self._room.clear()
                await self._room.wait()

    def sent(self, parts: int) -> None:
        self._ahead -= parts
        self._room.set()

    def end(self) -> None:
        """Complete the reply, also where its work was cancelled."""
        if not self._complete:
            self._send_head()
            self._tell(Part(self._number, b"", False))

    def _send_head(self) -> None:
        if self._head is not None:
            self._begin(b"", True)
            self._ahead += 1

    def _begin(self, body: bytes, more: bool) -> None:
        head, self._head = self._head, None
        assert head is not None
        headers = [*head.get("headers", ()), *self.hints.header()]
        self._tell(Begun(self._number, head["status"], headers, body, more))
