"""A TCP relay that adds the round-trip time of a network between two processes on loopback.

    with relay(server.url, rtt_ms=20) as url:
        ...

It is a process of its own, so that it takes no time from the client's interpreter; a round trip through it took 0.2 to
0.5 ms more than that (2 virtual cores). A block, what one read returns, arrives half a round trip after it was sent;
bandwidth and packets are not modelled. With jitter each block takes a random time longer, and none overtakes another.
Setting up a connection takes a round trip: what the client sends during the
first leaves when that is over, what the server sends 1.5 round trips after it at the earliest. An EOF or a reset
travels like data.
"""

import asyncio
import random
import selectors
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from specpair.child_processes.children import child

_BLOCK = 64 * 1024  # bytes
_MOST_BLOCKS = 64  # under way in one direction of a connection, after which no more is read
_EARLY = 4e-4  # seconds; sleeping ends up to 0.3 ms late, so the loop turns without sleeping for the last of a wait
_RESET_ON_CLOSE, _SEND_ON_CLOSE = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)  # values of SO_LINGER


async def _until(when: float) -> None:
    while (left := when - asyncio.get_running_loop().time()) > 0:
        await asyncio.sleep(max(0.0, left - _EARLY))


async def _carry(source: socket.socket, sink: socket.socket, ready: float, delay: float, jitter: float) -> None:
    """Carry one direction of a connection: read from the time `ready` on, write each block `delay` seconds later.

    `jitter`: mean of the random seconds that are added for each block.
    """
    loop = asyncio.get_running_loop()
    under_way: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(_MOST_BLOCKS)

    async def take_in() -> None:
        await _until(ready)
        block: bytes | None = b"any"
        while block:
            try:
                block = await loop.sock_recv(source, _BLOCK)
            except OSError:
                block = None  # the source is gone; the sink learns it when the news has travelled
            longer = random.expovariate(1.0 / jitter) if jitter else 0.0
            await under_way.put((loop.time() + delay + longer, block))

    async def hand_out() -> None:
        while True:
            arrival, block = await under_way.get()
            await _until(arrival)
            if block is None:
                raise ConnectionResetError
            if not block:
                sink.shutdown(socket.SHUT_WR)
                return
            await loop.sock_sendall(sink, block)

    async with asyncio.TaskGroup() as group:
        group.create_task(take_in())
        group.create_task(hand_out())


async def _join(client: socket.socket, target: tuple[str, int], rtt: float, jitter: float) -> None:
    """Join an accepted connection to one of its own to `target`."""
    loop = asyncio.get_running_loop()
    opened = loop.time()
    try:
        with client, socket.socket() as server:
            server.setblocking(False)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)  # unless all goes well
            await loop.sock_connect(server, target)
            async with asyncio.TaskGroup() as group:
                group.create_task(_carry(client, server, opened + rtt, rtt / 2, jitter))
                group.create_task(_carry(server, client, opened + 1.5 * rtt, rtt / 2, jitter))
            for end in (client, server):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _SEND_ON_CLOSE)
    except* OSError:
        pass  # one end is gone, and closing the other has told it so


async def _serve(target: tuple[str, int], rtt: float, jitter: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        print(listener.getsockname()[1], flush=True)
        async with asyncio.TaskGroup() as connections:
            while True:
                client, _ = await asyncio.get_running_loop().sock_accept(listener)
                connections.create_task(_join(client, target, rtt, jitter))


@contextmanager
def relay(to: str, rtt_ms: float, jitter_ms: float = 0.0) -> Iterator[str]:
    """Run a relay to a URL while the block lasts; yields the URL that leads through it.

    `jitter_ms`: mean of the random delay of each block.

    Raises RuntimeError if the relay does not start.
    """
    there = urlsplit(to)
    command = ["-m", "lab.benchmarks.harness.relay", there.netloc, str(rtt_ms), str(jitter_ms)]
    with child(*command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        listens = process.stdout.readline().strip()
        if not listens:
            raise RuntimeError(f"the relay did not start: python {' '.join(command)}")
        yield there._replace(netloc=f"127.0.0.1:{listens}").geturl()


def main() -> None:
    host, _, port = sys.argv[1].rpartition(":")
    rtt, jitter = (float(each) / 1e3 for each in sys.argv[2:])

    def loop() -> asyncio.AbstractEventLoop:
        # epoll's timeouts are rounded up to whole milliseconds; select takes microseconds.
        return asyncio.SelectorEventLoop(selectors.SelectSelector())

    with asyncio.Runner(loop_factory=loop) as runner, suppress(KeyboardInterrupt):
        runner.run(_serve((host, int(port)), rtt, jitter))


if __name__ == "__main__":
    main()
