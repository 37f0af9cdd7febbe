"""Accepts connections over TLS. A client has few handshakes at once: each takes the event loop longer than a request
does, and all others would wait behind a flood of them."""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from ssl import SSLContext
from weakref import WeakSet, WeakValueDictionary

from specpair.http_service.connection import Connection
from specpair.http_service.keys.access import client_of

AT_ONCE = 4  # handshakes of one client; it waits with more, and that counts in the time that they may take
_PAUSE = 1.0  # seconds until the next try after the system gave no connection, as with too many open files
_log = logging.getLogger("specpair.service")


def is_here(client: str, server: str) -> bool:
    """Whether the client of a connection is on this machine, by the addresses of the connection's ends."""
    return client == server or client_of(client) == "127.0.0.1"


class Acceptor:
    """Accepts the connections of one service. Used in the event loop."""

    def __init__(self, make: Callable[[], Connection], context: SSLContext, seconds: float) -> None:
        """`seconds`: for a handshake."""
        self._make, self._context, self._seconds = make, context, seconds
        self._turns = WeakValueDictionary[str, asyncio.Semaphore]()  # by client
        self._others = WeakSet[Connection]()  # of other machines
        self._only_here = False
        self._tasks = set[asyncio.Task[None]]()

    def accept_from(self, bound: socket.socket, backlog: int) -> None:
        """Accept the connections to a socket until `close`."""
        bound.setblocking(False)
        bound.listen(backlog)
        self._start(self._accept(bound))

    async def close(self) -> None:
        """Accept no more connections. Open ones stay."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def shut_out_others(self) -> None:
        """Serve this machine only, from now on: break connections of others, and refuse new ones before a handshake."""
        self._only_here = True
        for connection in [*self._others]:
            connection.abort()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, bound: socket.socket) -> None:
        while True:
            try:
                accepted, address = await asyncio.get_running_loop().sock_accept(bound)
            except OSError as error:
                _log.error("no connection can be accepted: %s", error)
                await asyncio.sleep(_PAUSE)
            else:
                self._start(self._open(accepted, address[0]))
                await asyncio.sleep(0)  # asyncio's loop would accept all that wait before it does anything else

    async def _open(self, accepted: socket.socket, client: str) -> None:
        try:
            here = is_here(client, accepted.getsockname()[0])
            turn = self._turns.setdefault(client_of(client), asyncio.Semaphore(AT_ONCE))
            async with asyncio.timeout(self._seconds), turn:
                if self._only_here and not here:
                    raise ConnectionAbortedError
                loop = asyncio.get_running_loop()
                _, connection = await loop.connect_accepted_socket(self._make, accepted, ssl=self._context)
        except OSError:  # also: the client has left, does not take the certificate, or was too slow
            accepted.close()
            return
        if not here:
            self._others.add(connection)
            if self._only_here:
                connection.abort()
