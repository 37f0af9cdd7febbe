"""Capacity of the real server: HTTP, its process and its engine thread, with replayed drafters, all times dilated.

The scheduler's clock goes as much slower as the target. What the verifier's own programs take is not dilated: divided
out, they look faster by that factor; nor are the passes that it tries out before its engine starts. This process
plays the clients in one event loop: their drafts, and what comes of them, are known beforehand; they sleep the
drafts' and the link's time, and wait. Forms: k=4 (send, wait, draft) and target (`/generate`, streamed). A run is
void if client and server processes together used more than half of the machine, or a pass or a client's thinking
lasted over 3 % too long.
"""

import asyncio
import os
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI

from backends.base import Entry, Logits
from backends.machine import cores
from benchmarks.harness.serving import Server, verifier
from benchmarks.harness.wire import Wire, request
from drafter_client.http.client import VerifierClient
from simulation.capacity import Setting
from simulation.capacity_model import KnownText, Metrics, Target, TextRange
from simulation.paced import Cost, Paced
from verifier_server.app import create_app
from verifier_server.settings import from_environment

ROWS, CONTEXT = 64, 4096
_BUSY, _LATE = 0.5, 1.03
_WITHIN = 0.2  # seconds in which the clients start, before dilation


@dataclass(frozen=True, slots=True)
class Real:
    """What was measured, divided by the dilation, and whether it holds."""

    metrics: Metrics
    parts: list[TextRange]  # of the texts, that were written meanwhile
    used: float  # share of the machine that clients and server used
    worst_pass: float  # time taken as a multiple of the time due
    worst_thinking: float

    @property
    def void(self) -> bool:
        return self.used > _BUSY or max(self.worst_pass, self.worst_thinking) > _LATE


class Client:
    """One client, in lockstep or with the target alone."""

    def __init__(self, number: int, url: str, setting: Setting, dilation: float) -> None:
        self.text, self.times = KnownText(number), list[float]()
        self.thinking: list[float] = []  # time taken as a multiple of the time due
        self._number, self._url, self._setting, self._dilation = number, url, setting, dilation

    async def run(self, form: str) -> None:
        await asyncio.sleep(self._dilation * random.Random(self._number).uniform(0.0, _WITHIN))
        parts = urlsplit(self._url)
        wire = await Wire.open((str(parts.hostname), int(parts.port or 0)))
        await (self._lockstep(wire) if form == "k=4" else self._alone(wire))

    async def _lockstep(self, wire: Wire) -> None:
        session = {"session_id": f"session-{self._number}"}
        opened = request("POST", "/prefill", session | {"prompt_ids": self.text.prompt})
        answer, position = (await wire.ask(opened)).body, len(self.text.prompt) + 1
        k, due = self._setting.k, self._dilation * self._setting.thinking_ms / 1e3
        while answer["finish_reason"] is None:
            began = time.perf_counter()
            draft = {"position": position, "draft_tokens": self.text.draft(position, k)}
            position += self.text.gain(position, k)
            sent = request("POST", "/verify", session | draft)
            await asyncio.sleep(due - (time.perf_counter() - began))
            self.thinking.append((time.perf_counter() - began) / due)
            answer = (await wire.ask(sent)).body
            if answer["total_tokens"] != position:
                raise RuntimeError(f"{answer['total_tokens']} tokens are committed, {position} should be")
            self.times += [time.perf_counter()] * len(answer["tokens"])

    async def _alone(self, wire: Wire) -> None:
        await wire.begin(request("POST", "/generate", {"prompt_ids": self.text.prompt, "stream": True}))
        async for name, data in wire.events():
            if name == "tokens" and data["position"] > len(self.text.prompt):
                self.times += [time.perf_counter()] * len(data["tokens"])


def measure(form: str, clients: int, setting: Setting, dilation: float) -> Real:
    """So many clients of this form at a verifier of their own."""
    with tempfile.TemporaryDirectory() as folder:
        passes = Path(folder) / "passes.txt"
        how = {"PACED_TARGET": setting.target, "CAPACITY_DILATION": dilation, "CAPACITY_PASSES": passes}
        with verifier("benchmarks.capacity.real:application()", backend="scripted", **how) as server:
            with closing(VerifierClient(server.url)) as client:
                client.wait_until_ready()
            crowd = [Client(number, server.url, setting, dilation) for number in range(clients)]
            start, end, parts, used = asyncio.run(_watch(crowd, form, setting, dilation, server))
        noted = [[float(part) for part in line.split()] for line in passes.read_text().splitlines()]
    times = [[moment / dilation for moment in client.times] for client in crowd]
    thinking = max((thought for client in crowd for thought in client.thinking), default=1.0)
    metrics = Metrics.of(times, start / dilation, end / dilation)
    return Real(metrics, parts, used, max(took / cost for cost, took, _ in noted), thinking)


async def _watch(
    crowd: list[Client], form: str, setting: Setting, dilation: float, server: Server
) -> tuple[float, float, list[TextRange], float]:
    """Run the clients: the span that was watched, the parts of texts written in it, the machine's share used."""
    tasks = [asyncio.create_task(client.run(form)) for client in crowd]
    await _sleep(dilation * setting.warm_up, tasks)
    start, used, known = time.perf_counter(), _cpu_seconds(server), [len(client.times) for client in crowd]
    await _sleep(dilation * setting.seconds, tasks)
    end, used = time.perf_counter(), _cpu_seconds(server) - used
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    parts = []
    for client, count in zip(crowd, known, strict=True):
        first = len(client.text.prompt) + 1
        parts.append((client.text, first + count, first + len(client.times)))
    return start, end, parts, used / (end - start) / cores()


async def _sleep(seconds: float, tasks: list["asyncio.Task[None]"]) -> None:
    """Raises what a client raises meanwhile, and RuntimeError where a text ends."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
        raise RuntimeError("a text ended before the time was over")


def _cpu_seconds(server: Server) -> float:
    """Used by this process and the server's so far."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Dilated(Paced):
    """The toy target at `dilation` times its cost, from the moment the engine first asks for the time."""

    def __init__(self, cost: Cost, dilation: float, file: str) -> None:
        super().__init__(Target(slots=ROWS, context_length=CONTEXT), cost)
        self._slow, self._dilation = cost.dilated(dilation), dilation
        self._notes = open(file, "w", encoding="ascii", buffering=1)  # noqa: SIM115 for as long as the process lives

    def clock(self) -> float:
        """Seconds, as slow as everything is."""
        self.cost = self._slow
        return time.perf_counter() / self._dilation

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        began = time.perf_counter()
        logits = super()._forward(batch)
        if self.cost is self._slow:
            self._notes.write(f"{self.cost.of(batch):.3f} {1e3 * (time.perf_counter() - began):.3f} {len(batch)}\n")
        return logits


def application() -> FastAPI:
    """A verifier by PACED_TARGET, CAPACITY_DILATION and CAPACITY_PASSES."""
    cost, dilation, file = (os.environ[name] for name in ("PACED_TARGET", "CAPACITY_DILATION", "CAPACITY_PASSES"))
    backend = Dilated(Cost.parse(cost), float(dilation), file)
    return create_app(from_environment(), backend, clock=backend.clock)
