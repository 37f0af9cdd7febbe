"""Measures how a shared verifier answers `/live` while somebody floods `/join` with wrong tokens.

Method. The command `verifier --share` runs in a process of its own. A second process sends requests to join over TLS
from several connections, evenly in time; each connection waits for its reply. This process asks for `/live` every
20 ms, over one connection that is kept. There is an open invitation, so a right token would be taken. The wait after
ten wrong tokens hides what looking up a token costs. So a second verifier lets nobody wait, as if each token came from
another address.

    python -m lab.benchmarks.join_flood [--rate 1000] [--seconds 10] [--connections 16]
"""

import asyncio
import http.client
import json
import multiprocessing
import os
import secrets
import socket
import ssl
import time
from collections import Counter
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from drafter_client.http.trust import Trust
from lab.benchmarks.harness.machine import running, watch
from lab.benchmarks.harness.report import Report, options_of
from specpair.http_service.keys import key_file
from specpair.http_service.sharing.link import new_token, written
from specpair.http_service.sharing.share import Share
from specpair.numbers import quantile

EVERY = 0.02  # seconds between two looks at /live
CASES = ("no flood", "not the form of a token", "wrong tokens", "wrong tokens, each by a new connection")
NO_WAIT = (
    "import sys; from specpair.http_service.sharing import joining; joining.WRONG = 10**9; "
    "from verifier_server.__main__ import main; sys.exit(main())"
)


def main() -> None:
    options = options_of(__doc__, {"rate": 1000, "seconds": 10.0, "connections": 16}, "cryptography")
    report = Report("join_flood", options)
    for title, program in (("as it is", ("-m", "verifier_server")), ("nobody has to wait", ("-c", NO_WAIT))):
        with TemporaryDirectory() as folder:
            share = Share("verifier", Path(folder) / "specpair" / "verifier")
            share.prepare()
            share.invitations.invite()
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            context = Trust(share.anchor_pem).context
            with (
                httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context, trust_env=False) as client,
                running(
                    *(*program, "--share", "--port", str(port)),
                    client=client,
                    ready="/ready",
                    environment={**os.environ, "XDG_STATE_HOME": folder},
                    seconds=60,
                ),
            ):
                for case in CASES if program[0] == "-m" else CASES[2:]:
                    line = _measured(port, share.anchor_pem, CASES.index(case), options)
                    report.line(f"{title}, {case}: {line}, {len(key_file.read(share.keys))} joined")
    report.save()


def _measured(port: int, pem: str, case: int, options: "object") -> str:
    """What the client of `/live` and the flood saw, in words."""
    rate, seconds, connections = options.rate, options.seconds, options.connections  # type: ignore[attr-defined]
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    flood = context.Process(target=_flood, args=(there, port, pem, case, rate if case else 0, seconds, connections))
    flood.start()
    there.close()
    here.recv()  # it begins
    waits = list[float]()
    trusting = Trust(pem).context
    with watch() as lost, closing(http.client.HTTPSConnection("127.0.0.1", port, context=trusting)) as asking:
        began = time.perf_counter()
        while (at := time.perf_counter()) - began < seconds:
            asking.request("GET", "/live")
            reply = asking.getresponse()
            reply.read()
            assert reply.status == 200
            waits.append(1e3 * (time.perf_counter() - at))
            time.sleep(max(0.0, EVERY - (time.perf_counter() - at)))
        paused = lost()
    replies: Counter[int] = here.recv()
    flood.join()
    statuses = ", ".join(f"{count} x {status}" for status, count in sorted(replies.items())) or "none"
    return (
        f"{replies.total() / seconds:.0f} requests/s ({statuses}); /live median {quantile(waits, 0.5):.1f} ms, p99 "
        f"{quantile(waits, 0.99):.1f}, most {max(waits):.1f}; the machine stood still for {paused:.1f} s"
    )


def _flood(to: Connection, port: int, pem: str, case: int, rate: int, seconds: float, connections: int) -> None:
    """In a process of its own: send requests to join, and then how many replies had each status."""
    to.send("ready")
    to.send(asyncio.run(_sent(port, Trust(pem).context, case, rate, seconds, connections)))


async def _sent(
    port: int, trusting: ssl.SSLContext, case: int, rate: int, seconds: float, connections: int
) -> Counter[int]:
    replies: Counter[int] = Counter()
    begin = time.perf_counter()

    async def one(number: int) -> None:
        at, streams = begin + number / max(rate, 1), None
        while rate and at < begin + seconds:
            await asyncio.sleep(at - time.perf_counter())
            at = max(at + connections / rate, time.perf_counter() - 1.0)  # what was missed is sent later, within limits
            token, status = secrets.token_hex(8) if case == 1 else written(new_token()), 0
            try:
                streams = streams or await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
                status = await _status(*streams, token)
            except (OSError, asyncio.IncompleteReadError):  # it broke the connection
                streams = None
            replies[status] += 1
            if streams is not None and case == 3:
                streams[1].transport.abort()
                streams = None

    await asyncio.gather(*map(one, range(connections)))
    return replies


async def _status(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> int:
    body = json.dumps({"token": token, "name": "guest"}).encode()
    head = f"POST /join HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    writer.write(f"{head}\r\n\r\n".encode() + body)
    reply = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(reply.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    return int(reply.split(b" ", 2)[1])


if __name__ == "__main__":
    main()
