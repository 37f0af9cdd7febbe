"""A TCP relay that stands in for a network between two processes on loopback: delay, jitter, bandwidth, outages.

It runs in a process of its own, so that it takes no time from the interpreter of the client it delays. Beyond what the
link takes, a round trip through it took 0.2 to 0.5 ms more in the median where this was written (2 virtual cores).

    with relay(server.url, Link(rtt_ms=20, jitter_ms=1, mbit=100)) as url:
        ...
    python -m benchmarks.relay --to 127.0.0.1:8000 --rtt-ms 20  # prints the port it listens on

What is copied from a real network and what is not:

* A block is what one read returns, 64 KiB at most. It arrives whole, when its last byte would. Packets, their headers
  and TCP's slow start are not modelled.
* All connections share the bandwidth of a direction; every block travels half the round-trip time and its own jitter.
* Setting up a connection takes a round trip: on loopback it is accepted at once, and what the client sends during
  the first RTT leaves when that is over, as after a handshake. What the server says leaves 1.5 RTT after it at the
  earliest, since only then would the client's ACK have reached it.
* During an outage the link's own time stands still: what is under way arrives that much later, as TCP would deliver
  it. With `cut` an outage resets all connections when it begins and refuses new ones until it is over.
* An EOF travels like data. So does a reset; one that is noticed only in writing ends both sides at once.
"""

import argparse
import asyncio
import math
import random
import selectors
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from benchmarks.children import child

_BLOCK = 64 * 1024  # bytes
_ROOM = 4 * 1024 * 1024  # bytes waiting in one direction of a connection, after which no more is read
_EARLY = 4e-4  # seconds; sleeping ends up to 0.3 ms late, so the loop turns without sleeping for the last of a wait
_RESET_ON_CLOSE, _SEND_ON_CLOSE = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)  # values of SO_LINGER


@dataclass(frozen=True, slots=True)
class Link:
    """What lies between the two ends."""

    rtt_ms: float = 0.0
    jitter_ms: float = 0.0  # mean of what is added each way to a block's journey, exponentially distributed
    mbit: float | None = None  # 10^6 bits a second in each direction; None: no limit
    outages: tuple[tuple[float, float], ...] = ()  # (start, length) in seconds, in order; a relay's start is 0
    cut: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.rtt_ms, self.jitter_ms) < 0 or (self.mbit is not None and self.mbit <= 0):
            raise ValueError(f"a link has no negative delay and some bandwidth, got {self}")
        over = 0.0
        for start, seconds in self.outages:
            if start < over or seconds <= 0:
                raise ValueError(f"outages follow one another and have a length, got {self.outages}")
            over = start + seconds

    def after(self, now: float, seconds: float) -> float:
        """When `seconds` of the link's own time have passed since `now`."""
        for start, length in self.outages:
            if now + seconds < start:
                break
            if now < start + length:
                seconds -= max(0.0, start - now)
                now = start + length
        return now + seconds


class Wire:
    """One direction of a link, for all its connections. It has no clock of its own."""

    def __init__(self, link: Link, name: str = "") -> None:
        self._link = link
        self._random = random.Random(f"{link.seed} {name}")
        self.clear()

    def clear(self) -> None:
        """Forget what waits to be sent."""
        self._free = 0.0  # when all that was handed in will have been sent

    def arrival(self, now: float, size: int, not_before: float = 0.0) -> float:
        """When a block handed in now arrives. Blocks must be handed in in the order of their times."""
        link = self._link
        sending = 8e-6 * size / link.mbit if link.mbit is not None else 0.0
        jitter = self._random.expovariate(1e3 / link.jitter_ms) if link.jitter_ms else 0.0
        self._free = link.after(max(now, self._free), sending)
        return max(not_before, link.after(self._free, link.rtt_ms / 2e3 + jitter))


async def _until(when: float) -> None:
    while (left := when - asyncio.get_running_loop().time()) > 0:
        await asyncio.sleep(max(0.0, left - _EARLY))


class _Pipe:
    """One direction of one connection."""

    def __init__(self, wire: Wire, source: socket.socket, sink: socket.socket) -> None:
        self._wire, self._source, self._sink = wire, source, sink
        self._loop = asyncio.get_running_loop()
        self._under_way: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue()
        self._waiting = 0  # bytes
        self._room = asyncio.Event()
        self._room.set()

    async def take_in(self, ready: float) -> None:
        """Read blocks and note when they arrive, from the time `ready` on."""
        await _until(ready)
        arrival = 0.0
        while True:
            await self._room.wait()
            block: bytes | None
            try:
                block = await self._loop.sock_recv(self._source, _BLOCK)
            except OSError:
                block = None  # the source is gone, which the sink is to learn when the news has travelled
            size = len(block or b"")
            arrival = self._wire.arrival(self._loop.time(), size, not_before=arrival)
            self._under_way.put_nowait((arrival, block))
            if not block:
                return
            self._waiting += size
            if self._waiting > _ROOM:
                self._room.clear()

    async def hand_out(self) -> None:
        """Write each block when it arrives; an EOF ends this direction, a reset both."""
        while True:
            arrival, block = await self._under_way.get()
            await _until(arrival)
            if block is None:
                raise ConnectionResetError
            if not block:
                self._sink.shutdown(socket.SHUT_WR)
                return
            await self._loop.sock_sendall(self._sink, block)
            self._waiting -= len(block)
            if self._waiting <= _ROOM:
                self._room.set()


class _Relay:
    """Accepts connections for `target` and joins each to one of its own there."""

    def __init__(self, link: Link, target: tuple[str, int]) -> None:
        self._loop = asyncio.get_running_loop()
        began = self._loop.time()
        self._link = replace(link, outages=tuple((began + start, seconds) for start, seconds in link.outages))
        self._target = target
        self._there, self._back = Wire(self._link, "there"), Wire(self._link, "back")
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self, port: int) -> None:
        """Listen on `port`, 0 for a free one, and print which it is."""
        with _bound(port) as held:  # never listens: keeps the port from others while connections are refused
            port = held.getsockname()[1]
            for number, (start, seconds) in enumerate([*self._link.outages * self._link.cut, (math.inf, 0.0)]):
                with _bound(port) as listener:
                    listener.listen()
                    if number == 0:
                        print(port, flush=True)
                    await self._accept(listener, start)
                for connection in self._connections:
                    connection.cancel()
                self._there.clear()
                self._back.clear()
                await _until(start + seconds)

    async def _accept(self, listener: socket.socket, until: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while True:
                    client, _ = await self._loop.sock_accept(listener)
                    connection = asyncio.create_task(self._join(client))
                    self._connections.add(connection)
                    connection.add_done_callback(self._connections.discard)

    async def _join(self, client: socket.socket) -> None:
        opened, round_trip = self._loop.time(), self._link.rtt_ms / 1e3
        try:
            with client, socket.socket() as server:
                server.setblocking(False)
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)  # unless all goes well
                await self._loop.sock_connect(server, self._target)
                there = _Pipe(self._there, client, server)
                back = _Pipe(self._back, server, client)
                async with asyncio.TaskGroup() as group:
                    group.create_task(there.take_in(self._link.after(opened, round_trip)))
                    group.create_task(there.hand_out())
                    group.create_task(back.take_in(self._link.after(opened, 1.5 * round_trip)))
                    group.create_task(back.hand_out())
                for end in (client, server):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _SEND_ON_CLOSE)
        except* OSError:
            pass  # one end is gone, and closing the other has told it so


async def _serve(link: Link, target: tuple[str, int], port: int) -> None:
    await _Relay(link, target).run(port)


def _bound(port: int) -> socket.socket:
    """A socket that holds `port` of loopback, together with others made here."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.setblocking(False)
    bound.bind(("127.0.0.1", port))
    return bound


@contextmanager
def relay(to: str | int, link: Link, port: int = 0) -> Iterator[str]:
    """Run a relay to a URL, or a port of this machine, while the block lasts. Gives the URL that leads through it.

    `port`: where it listens; 0: on a free one.
    """
    there = urlsplit(to if isinstance(to, str) else f"http://127.0.0.1:{to}")
    command = ["-m", "benchmarks.relay", "--to", there.netloc, "--listen", str(port), *_flags(link)]
    with child(*command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        listens = process.stdout.readline().strip()
        if not listens:
            raise RuntimeError(f"the relay did not start: python {' '.join(command)}")
        yield there._replace(netloc=f"127.0.0.1:{listens}").geturl()


def _flags(link: Link) -> list[str]:
    flags = [f"--rtt-ms={link.rtt_ms}", f"--jitter-ms={link.jitter_ms}", f"--seed={link.seed}"]
    flags += [f"--mbit={link.mbit}"] * (link.mbit is not None) + ["--cut"] * link.cut
    return flags + [word for start, seconds in link.outages for word in ("--outage", str(start), str(seconds))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", required=True, metavar="HOST:PORT")
    parser.add_argument("--listen", type=int, default=0, metavar="PORT", help="0: a free one (default)")
    parser.add_argument("--rtt-ms", type=float, default=0.0)
    parser.add_argument("--jitter-ms", type=float, default=0.0)
    parser.add_argument("--mbit", type=float)
    parser.add_argument("--outage", type=float, nargs=2, action="append", default=[], metavar=("START", "SECONDS"))
    parser.add_argument("--cut", action="store_true", help="outages reset connections and refuse new ones")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outages = tuple((start, seconds) for start, seconds in options.outage)
    link = Link(options.rtt_ms, options.jitter_ms, options.mbit, outages, options.cut, options.seed)
    host, _, port = options.to.rpartition(":")

    def loop() -> asyncio.AbstractEventLoop:
        # epoll's timeouts are rounded up to whole milliseconds; select takes microseconds.
        return asyncio.SelectorEventLoop(selectors.SelectSelector())

    with asyncio.Runner(loop_factory=loop) as runner, suppress(KeyboardInterrupt):
        runner.run(_serve(link, (host, int(port)), options.listen))


if __name__ == "__main__":
    main()
