"""Capacity of the real server: HTTP, its process and its engine thread, with replayed drafters, all times dilated.

The verifier runs in a process of its own on a toy target whose passes take `dilation` times their cost
(`benchmarks.capacity_server`). This process plays the clients in one event loop: what they draft is known beforehand,
and so is what comes of it; they sleep the drafts' and the link's time, send bytes made meanwhile, and wait. All times
are divided by the dilation in the end. Forms: k=4 (send, wait, draft) and target (`/generate`, streamed).

A run is void if the programs had not the time they needed: if client and server processes together used more than half
of the machine, or a pass of the target or a client's thinking lasted over 3 % longer than it should.
"""

import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.machine import cores
from benchmarks.serving import Server, serve
from drafter_client.http.client import VerifierClient
from simulation.capacity import Setting
from simulation.capacity_model import Figures, KnownText, Part

_BUSY, _LATE = 0.5, 1.03
_WITHIN = 0.2  # seconds in which the clients start, before dilation


@dataclass(frozen=True, slots=True)
class Real:
    """Figures, divided by the dilation, and whether they hold."""

    figures: Figures
    parts: list[Part]  # of the texts, that were written meanwhile
    rows: float  # sessions in a pass, on average
    used: float  # share of the machine that clients and server used
    worst_pass: float  # time taken as a multiple of the time due
    worst_thinking: float
    late_passes: int  # that took over 3 % longer
    late_thoughts: int

    @property
    def void(self) -> bool:
        return self.used > _BUSY or max(self.worst_pass, self.worst_thinking) > _LATE


class Connection:
    """One client's connection to the server, kept alive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, url: str) -> "Connection":
        host, _, port = url.removeprefix("http://").partition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, request: bytes) -> Any:
        """Send a request; its answer."""
        head = await self._send(request)
        length = int(head.lower().partition(b"content-length:")[2].split(None, 1)[0])
        return json.loads(await self._reader.readexactly(length))

    async def listen(self, request: bytes, heard: Callable[[int, int], None]) -> None:
        """Send a request for a stream of tokens; `heard` is told the position and the number of those that come."""
        await self._send(request)
        name = b""
        async for line in self._reader:
            field, _, value = line.rstrip().partition(b": ")
            if field == b"event":
                name = value
            elif field == b"data" and name == b"tokens":
                data = json.loads(value)
                heard(data["position"], len(data["tokens"]))

    async def _send(self, request: bytes) -> bytes:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the verifier answered {head!r}")
        return head


class Crowd:
    """Clients that live in one event loop."""

    def __init__(self, url: str, setting: Setting, dilation: float) -> None:
        self.times: list[list[float]] = []
        self.texts: list[KnownText] = []
        self.thinking: list[float] = []  # time taken as a multiple of the time due
        self._url, self._setting, self._dilation = url, setting, dilation

    def lockstep(self, number: int) -> Coroutine[Any, Any, None]:
        """A client that drafts, sends and waits."""
        return self._lockstep(number, *self._client(number))

    def target(self, number: int) -> Coroutine[Any, Any, None]:
        """A client that drafts nothing."""
        return self._target(number, *self._client(number))

    def _client(self, number: int) -> tuple[KnownText, list[float]]:
        self.texts.append(KnownText(number))
        self.times.append([])
        return self.texts[-1], self.times[-1]

    async def _lockstep(self, number: int, text: KnownText, times: list[float]) -> None:
        connection = await self._opened(number)
        prompt = {"session_id": f"session-{number}", "prompt_ids": text.prompt}
        answer = await connection.ask(_request("/prefill", prompt))
        setting, position = self._setting, len(text.prompt) + 1
        due = self._dilation * setting.thinking_ms / 1e3
        while answer["finish_reason"] is None:
            began = time.perf_counter()
            guess = {"session_id": prompt["session_id"], "position": position}
            request = _request("/verify", guess | {"draft_tokens": text.guess(position, setting.k)})
            position += text.gain(position, setting.k)
            await asyncio.sleep(due - (time.perf_counter() - began))
            self.thinking.append((time.perf_counter() - began) / due)
            answer = await connection.ask(request)
            if answer["total_tokens"] != position:
                raise RuntimeError(f"{answer['total_tokens']} tokens are committed, {position} should be")
            times += [time.perf_counter()] * len(answer["tokens"])

    async def _target(self, number: int, text: KnownText, times: list[float]) -> None:
        connection = await self._opened(number)

        def heard(position: int, count: int) -> None:
            if position > len(text.prompt):
                times.extend([time.perf_counter()] * count)

        await connection.listen(_request("/generate", {"prompt_ids": text.prompt, "stream": True}), heard)

    async def _opened(self, number: int) -> Connection:
        await asyncio.sleep(self._dilation * random.Random(number).uniform(0.0, _WITHIN))
        return await Connection.open(self._url)


def measure(form: str, clients: int, setting: Setting, dilation: float) -> Real:
    """So many clients of this form at a verifier of their own."""
    with tempfile.TemporaryDirectory() as folder:
        passes = Path(folder) / "passes.txt"
        environment = {
            "PACED_TARGET": str(setting.target),
            "CAPACITY_DILATION": str(dilation),
            "CAPACITY_PASSES": str(passes),
            "VERIFIER_BACKEND": "scripted",
        }
        with serve("benchmarks.capacity_server:app", environment) as server:
            VerifierClient(server.url).wait_until_ready()
            crowd = Crowd(server.url, setting, dilation)
            start, end, parts, used = asyncio.run(_watch(crowd, form, clients, server))
        noted = [[float(part) for part in line.split()] for line in passes.read_text().splitlines()]
    late = [took / cost for cost, took, _ in noted]
    times = [[time / dilation for time in each] for each in crowd.times]
    return Real(
        Figures.of(times, start / dilation, end / dilation),
        parts,
        sum(rows for *_, rows in noted) / len(noted),
        used,
        max(late),
        max(crowd.thinking, default=1.0),
        sum(each > _LATE for each in late),
        sum(each > _LATE for each in crowd.thinking),
    )


async def _watch(crowd: Crowd, form: str, clients: int, server: Server) -> tuple[float, float, list[Part], float]:
    """Let the crowd live: the span that was watched, the parts of texts written in it, the machine's share used."""
    kind = {"k=4": crowd.lockstep, "target": crowd.target}[form]
    tasks = [asyncio.create_task(kind(number)) for number in range(clients)]
    await _sleep(crowd._dilation * crowd._setting.warm_up, tasks)
    start, used, known = time.perf_counter(), _cpu_seconds(server), [len(each) for each in crowd.times]
    await _sleep(crowd._dilation * crowd._setting.seconds, tasks)
    end, used = time.perf_counter(), _cpu_seconds(server) - used
    parts = [
        (text, len(text.prompt) + 1 + count, len(text.prompt) + 1 + len(times))
        for text, times, count in zip(crowd.texts, crowd.times, known, strict=True)
    ]
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return start, end, parts, used / (end - start) / cores()


async def _sleep(seconds: float, tasks: list["asyncio.Task[None]"]) -> None:
    """Raises what a client raises meanwhile; none of them ends before."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
        raise RuntimeError("a text ended before the time was over")


def _cpu_seconds(server: Server) -> float:
    """Used by this process and the server's so far."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _request(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(data), data)
