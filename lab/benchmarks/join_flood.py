"""Measures how a shared verifier answers `/live` while somebody floods `/join` with wrong tokens.

Method. The command `verifier --share` runs in a process of its own, with an open invitation. A second process sends
requests to join over several connections, evenly in time; each connection waits for its reply. This process asks for
`/live` every 20 ms, over one connection. After ten wrong tokens, a client gets one reply a second. So a second verifier
lets nobody wait, as if each token came from another address: it looks up every token.

    python -m lab.benchmarks.join_flood [--rate 1000] [--seconds 10] [--connections 16]
"""

import asyncio
import http.client
import json
import multiprocessing
import os
import socket
import time
from argparse import Namespace
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
CALM, SHAPELESS, WRONG, NEW = "no flood", "no tokens by their form", "wrong tokens", "wrong tokens, new connections"
NO_WAIT = (
    "import sys; from specpair.http_service.sharing import joining; joining.WRONG = 10**9; "
    "from verifier_server.__main__ import main; sys.exit(main())"
)
PROGRAMS = (
    ("as it is", ("-m", "verifier_server"), (CALM, SHAPELESS, WRONG, NEW)),
    ("nobody has to wait", ("-c", NO_WAIT), (CALM, WRONG, NEW)),
)


def main() -> None:
    options = options_of(__doc__, {"rate": 1000, "seconds": 10.0, "connections": 16}, "cryptography")
    report = Report("join_flood", options)
    for title, program, cases in PROGRAMS:
        with TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
            share, port = Share("verifier", Path(folder) / "specpair" / "verifier"), free.getsockname()[1]
            free.close()
            share.prepare()
            share.invitations.invite()
            command = (*program, "--share", "--port", str(port))
            environment, trust = {**os.environ, "XDG_STATE_HOME": folder}, Trust(share.anchor_pem)
            with (
                httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=trust.context, trust_env=False) as client,
                running(*command, client=client, ready="/ready", environment=environment, seconds=60),
            ):
                for case in cases:
                    told = _measured(port, trust, case, options)
                    report.line(f"{title}, {case}: {told}; {len(key_file.read(share.keys))} joined")
    report.save()


def _measured(port: int, trust: Trust, case: str, options: Namespace) -> str:
    """What the flood got, and the client of `/live`."""
    here, there = multiprocessing.Pipe()
    flood = multiprocessing.get_context("spawn").Process(target=_flood, args=(there, port, trust, case, options))
    flood.start()
    there.close()
    here.recv()  # it begins
    waits = list[float]()
    with watch() as lost, closing(http.client.HTTPSConnection("127.0.0.1", port, context=trust.context)) as asking:
        ends = time.perf_counter() + options.seconds
        while (began := time.perf_counter()) < ends:
            asking.request("GET", "/live")
            assert asking.getresponse().read() == b'{"status":"alive"}\n'
            waits.append(1e3 * (time.perf_counter() - began))
            time.sleep(max(0.0, began + EVERY - time.perf_counter()))
        paused = lost()
    replies: Counter[int] = here.recv()
    flood.join()
    got = ", ".join(f"{count} x {status or 'no reply'}" for status, count in sorted(replies.items())) or "nothing"
    return (
        f"{replies.total() / options.seconds:.0f}/s got {got}; /live median {quantile(waits, 0.5):.1f} ms, p99 "
        f"{quantile(waits, 0.99):.1f} ms, most {max(waits):.1f} ms; the machine stood still for {paused:.1f} s"
    )


def _flood(to: Connection, port: int, trust: Trust, case: str, options: Namespace) -> None:
    """In a process of its own: send requests to join, and tell how many replies had each status; 0: none came."""
    to.send(None)
    replies: Counter[int] = Counter()
    begin, step = time.perf_counter(), options.connections / options.rate

    async def client(number: int) -> None:
        at, streams = begin + number / options.rate, None
        while at < begin + options.seconds and case != CALM:
            await asyncio.sleep(at - time.perf_counter())
            at = max(at + step, time.perf_counter() - 1.0)  # what was missed is sent later, within limits
            try:
                streams = streams or await asyncio.open_connection("127.0.0.1", port, ssl=trust.context)
                replies[await _status(*streams, "x" if case == SHAPELESS else written(new_token()))] += 1
            except (OSError, asyncio.IncompleteReadError):
                replies[0], streams = replies[0] + 1, None
            if streams is not None and case == NEW:
                streams[1].transport.abort()
                streams = None

    async def clients() -> None:
        await asyncio.gather(*map(client, range(options.connections)))

    asyncio.run(clients())
    to.send(replies)


async def _status(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> int:
    body = json.dumps({"token": token}).encode()
    head = f"POST /join HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    reply = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(reply.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
    return int(reply.split(b" ", 2)[1])


if __name__ == "__main__":
    main()
