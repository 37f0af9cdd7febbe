"""Measures what the service itself costs: `/verify` requests a second, over those of the barest FastAPI route.

Method. The command `verifier` with the scripted engine, whose passes cost next to nothing, and a uvicorn with a trivial
FastAPI route that answers a fixed reply, each a process of its own. This process sends `--clients` requests at a time,
each over its own connection, for `--seconds` to the one and then to the other, `--turns` times. *record*: a draft that
is committed already, so that the reply comes from the record. *judged*: four new draft tokens, which the scripted
target judges. CPU time is that of the server's processes, for each request.

With `--workers`, the verifier has so many fronts, whose CPU time and memory are told apart from that of the engine's
process.

    python -m lab.benchmarks.request_rate [--clients 8] [--seconds 2] [--turns 5] [--workers 1]    # needs Linux
"""

import asyncio
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import httpx
from fastapi import FastAPI

from lab.benchmarks.harness.machine import running, used_by
from lab.benchmarks.harness.report import Report, options_of
from specpair.child_processes.serving import serve, variables

REPLY = {
    **{"position": 1234, "accepted_prefix_len": 0, "judged": 4, "tokens": [97], "preds": [97], "total_tokens": 1235},
    **{"finish_reason": None, "timing": {"queue_ms": 0.123, "forward_ms": 0.456}},
}
DRAFT = [1, 2, 3, 4]
_TOTAL = re.compile(rb'"total_tokens":(\d+)')
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)

trivial = FastAPI()


@trivial.post("/verify")
async def trivial_verify(body: dict[str, object]) -> dict[str, object]:
    """The barest route that reads and writes JSON."""
    return REPLY


class Client(asyncio.Protocol):
    """Sends one request after the other over its connection until `stop`."""

    def __init__(self, request: Callable[[bytes], bytes]) -> None:
        """`request`: the next request, from the reply to the last one; from nothing at first."""
        self._request, self._reply = request, b""
        self.answered = 0
        self._stopping = False
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request(b""))

    def data_received(self, data: bytes) -> None:
        self._reply += data
        head, _, body = self._reply.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if length is None or len(body) < int(length[1]):
            return
        if b" 200 " not in head[:16]:
            self.ended.set_exception(RuntimeError(self._reply.decode()))
            self._transport.close()
            return
        reply, self._reply = self._reply, b""
        self.answered += 1
        if self._stopping:
            self._transport.close()
            self.ended.set_result(None)
        else:
            self._transport.write(self._request(reply))

    def stop(self) -> None:
        self._stopping = True


def post(body: dict[str, object], session: str) -> bytes:
    """A request of `/verify`."""
    content = json.dumps(body, separators=(",", ":")).encode()
    head = (
        f"POST /verify HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\nx-session-id: {session}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


class Sessions:
    """Sessions of a verifier, each with its next request."""

    def __init__(self, http: httpx.Client, count: int) -> None:
        self._positions: dict[str, int] = {}
        self._records: dict[str, bytes] = {}
        for session in [f"{kind}-{number}" for kind in ("record", "judged") for number in range(count)]:
            opened = http.post("/prefill", json={"prompt_ids": [1, 2, 3], "session_id": session, "seed": 1})
            position = opened.raise_for_status().json()["total_tokens"]
            first = http.post("/verify", json={"session_id": session, "position": position, "draft_tokens": DRAFT})
            reply = first.raise_for_status().json()
            if session.startswith("record"):
                self._records[session] = post({"position": position, "draft_tokens": reply["tokens"]}, session)
            else:
                self._positions[session] = reply["total_tokens"]

    def recorded(self) -> list[Callable[[bytes], bytes]]:
        """For each session, requests whose draft is committed already."""
        return [lambda _, record=record: record for record in self._records.values()]  # type: ignore[misc]

    def judged(self) -> list[Callable[[bytes], bytes]]:
        """For each session, requests whose draft tokens are new."""
        return [lambda reply, session=session: self._next(session, reply) for session in self._positions]  # type: ignore[misc]

    def _next(self, session: str, reply: bytes) -> bytes:
        if (total := _TOTAL.search(reply)) is not None:
            self._positions[session] = int(total[1])
        return post({"position": self._positions[session], "draft_tokens": DRAFT}, session)


def _same(client: Client) -> Client:
    return client


async def load(port: int, requests: list[Callable[[bytes], bytes]], seconds: float) -> float:
    """Requests a second with a connection for each of `requests`."""
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    clients = [Client(make) for make in requests]
    for client in clients:
        await loop.create_connection(partial(_same, client), "127.0.0.1", port)
    await asyncio.sleep(seconds)
    for client in clients:
        client.stop()
    await asyncio.gather(*(client.ended for client in clients))
    return sum(client.answered for client in clients) / (time.perf_counter() - began)


@contextmanager
def verifier(workers: int, slots: int = 16) -> Iterator[tuple[httpx.Client, "subprocess.Popen[str]", int]]:
    """The command `verifier` with the scripted engine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, **variables(backend="scripted", context=10_000_000, slots=slots, access_log="off")}
    command = ["-m", "verifier_server", "--port", str(port), "--workers", str(workers)]
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client,
        running(*command, client=client, ready="/health", environment=environment, seconds=60) as process,
    ):
        yield client, process, port


def fronts_of(verifier: int) -> list[int]:
    """The processes of a verifier's fronts."""
    children = Path(f"/proc/{verifier}/task/{verifier}/children").read_text(encoding="ascii").split()
    return [int(each) for each in children if b"fronts.front" in Path(f"/proc/{each}/cmdline").read_bytes()]


def memory_of(process: int) -> int:
    """Bytes of memory that a process has to itself or shares."""
    return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    options = options_of(__doc__, {"clients": 8, "seconds": 2.0, "turns": 5, "workers": 1})
    report = Report("request_rate", options)
    with verifier(options.workers) as (http, process, port), serve("lab.benchmarks.request_rate:trivial") as bare:
        sessions = Sessions(http, options.clients)
        bare_port = httpx.URL(bare.url).port or 0
        fixed = [lambda _: post({"position": 1234, "draft_tokens": DRAFT}, "bare")] * options.clients
        kinds = {
            "trivial": (bare_port, fixed, [bare.process.pid]),
            "record": (port, sessions.recorded(), [process.pid, *fronts_of(process.pid)]),
            "judged": (port, sessions.judged(), [process.pid, *fronts_of(process.pid)]),
        }
        rates: dict[str, list[float]] = {name: [] for name in kinds}
        costs: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
        for turn in range(options.turns + 1):
            for name, (at, requests, (first, *others)) in kinds.items():
                before = used_by(first), sum(map(used_by, others))
                rate = asyncio.run(load(at, requests, options.seconds))
                count = 1e-3 * rate * options.seconds
                cost = (used_by(first) - before[0]) / count, (sum(map(used_by, others)) - before[1]) / count
                if turn:  # the first turn warms up
                    rates[name].append(rate)
                    costs[name].append(cost)
        for name in kinds:
            ratio = median(ours / bare for ours, bare in zip(rates[name], rates["trivial"], strict=True))
            engine, front = (median(each) for each in zip(*costs[name], strict=True))
            shown = f"{engine:.3f} ms CPU each" + (f", and {front:.3f} ms in a front" if front else "")
            report.line(f"{name:8} {median(rates[name]):6.0f} requests/s  {ratio:.2f} of the trivial route's  {shown}")
        if fronts := fronts_of(process.pid):
            report.line(f"memory of a front: {max(map(memory_of, fronts)) / 1e6:.0f} MB")
    report.save()


if __name__ == "__main__":
    main()
