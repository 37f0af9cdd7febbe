"""Capacity of the real server: HTTP, its process and its engine thread, with replayed drafters, all times dilated.

The scheduler's clock goes as much slower as the target. What the verifier's own programs take is not dilated: divided
out, they look faster by that factor; nor are the passes that it tries out before its engine starts. This process
plays the clients, a thread each: their drafts, and what comes of them, are known beforehand; they sleep the drafts' and
the link's time, and wait. Forms: k=4 (send, wait, draft) and target (`/generate`, streamed). A run is void if client
and server processes together used more than half of the machine, or a pass or a client's thinking lasted over 3 % too
long.
"""

import os
import random
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI

from backends.machine import cores
from drafter_client.generation.text_session import TextSession
from drafter_client.http.client import VerifierClient
from lab.benchmarks.harness.processor_time import used_here_and_by
from lab.benchmarks.harness.texts import connected
from lab.simulator.costs.linear import LinearCost
from lab.simulator.known_outputs.capacity_clients import Setting
from lab.simulator.known_outputs.capacity_model import KnownOutput, Metrics, Target
from lab.simulator.paced.engine import Paced
from specpair.child_processes.serving import verifier
from specpair.engines.backend import Entry, Logits
from specpair.protocol.responses import GenerateTokensEvent
from specpair.speculation.draft import Draft
from verifier_server.app import create_app
from verifier_server.flags import from_environment

SLOTS, CONTEXT = 64, 4096
_BUSY, _LATE = 0.5, 1.03
_WITHIN = 0.2  # seconds in which the clients start, before dilation


@dataclass(frozen=True, slots=True)
class Real:
    """What was measured, divided by the dilation, and whether it holds."""

    metrics: Metrics
    used: float  # share of the machine that clients and server used
    worst_pass: float  # time taken as a multiple of the time due
    worst_thinking: float

    @property
    def void(self) -> bool:
        return self.used > _BUSY or max(self.worst_pass, self.worst_thinking) > _LATE


class Client:
    """One client, in lockstep or with the target alone."""

    def __init__(self, number: int, client: VerifierClient, setting: Setting, dilation: float) -> None:
        self.text, self.times = KnownOutput(number), list[float]()
        self.thinking: list[float] = []  # time taken as a multiple of the time due
        self._number, self._client, self._setting, self._dilation = number, client, setting, dilation

    def run(self, form: str) -> None:
        """Write the text until the client is aborted. Raises RuntimeError if tokens come that should not."""
        time.sleep(self._dilation * random.Random(self._number).uniform(0.0, _WITHIN))
        session = TextSession(self.text.prompt, f"session-{self._number}")
        if form == "k=4":
            return self._lockstep(session)
        for event in self._client.generate(session, {}):
            if isinstance(event, GenerateTokensEvent) and event.position > len(self.text.prompt):
                self.times += [time.perf_counter()] * len(event.tokens)

    def _lockstep(self, session: TextSession) -> None:
        self._client.prefill(session, {})
        position, k = len(self.text.prompt) + 1, self._setting.k
        due = self._dilation * self._setting.thinking
        while True:
            began = time.perf_counter()
            drafts, gain = self.text.draft(position, k), self.text.gain(position, k)
            time.sleep(due - (time.perf_counter() - began))
            self.thinking.append((time.perf_counter() - began) / due)
            answer = self._client.verify(session.session_id, Draft.chain(position, drafts))
            if len(answer.tokens) != gain:
                raise RuntimeError(f"{len(answer.tokens)} tokens came, {gain} should have")
            position += gain
            self.times += [time.perf_counter()] * gain


def measure(form: str, clients: int, setting: Setting, dilation: float) -> Real:
    """So many clients of this form at a verifier of their own."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        passes = Path(folder) / "passes.txt"
        how = {"PACED_TARGET": setting.target, "CAPACITY_DILATION": dilation, "CAPACITY_PASSES": passes}
        server = stack.enter_context(verifier("lab.benchmarks.capacity.real:application()", backend="scripted", **how))
        connections = [stack.enter_context(connected(server.url)) for _ in range(clients)]
        crowd = [Client(number, each, setting, dilation) for number, each in enumerate(connections)]
        with ThreadPoolExecutor(clients) as pool:
            try:
                running = [pool.submit(client.run, form) for client in crowd]
                _watch(dilation * setting.warm_up, running)
                start, used = time.perf_counter(), used_here_and_by(server.process.pid)
                _watch(dilation * setting.seconds, running)
                end, used = time.perf_counter(), used_here_and_by(server.process.pid) - used
            finally:
                for each in connections:
                    each.abort()
        late = [float(line) for line in passes.read_text().splitlines()]
    times = [[moment / dilation for moment in client.times] for client in crowd]
    thinking = max((thought for client in crowd for thought in client.thinking), default=1.0)
    metrics = Metrics.of(times, start / dilation, end / dilation)
    return Real(metrics, used / (end - start) / cores(), max(late), thinking)


def _watch(seconds: float, running: list["Future[None]"]) -> None:
    """Wait. Raises what a client raises meanwhile, and RuntimeError where a text ends."""
    for ended in wait(running, seconds, FIRST_COMPLETED).done:
        ended.result()
        raise RuntimeError("a text ended before the time was over")


class Dilated(Paced):
    """The toy target at `dilation` times its cost, from the moment the engine first asks for the time."""

    def __init__(self, cost: LinearCost, dilation: float, file: str) -> None:
        super().__init__(Target(slots=SLOTS, context_length=CONTEXT), cost)
        self._slow, self._dilation = cost.dilated(dilation), dilation
        self._notes = open(file, "w", encoding="ascii", buffering=1)  # noqa: SIM115 for as long as the process lives

    def clock(self) -> float:
        """Seconds, as slow as everything is."""
        self.pace.cost = self._slow
        return time.perf_counter() / self._dilation

    def _forward(self, batch: Sequence[Entry]) -> list[Logits]:
        began = time.perf_counter()
        logits = super()._forward(batch)
        if self.pace.cost is self._slow:
            self._notes.write(f"{(time.perf_counter() - began) / self._slow.of(batch):.4f}\n")
        return logits


def application() -> FastAPI:
    """A verifier by PACED_TARGET, CAPACITY_DILATION and CAPACITY_PASSES."""
    cost, dilation, file = (os.environ[name] for name in ("PACED_TARGET", "CAPACITY_DILATION", "CAPACITY_PASSES"))
    backend = Dilated(LinearCost.parse(cost), float(dilation), file)
    return create_app(from_environment(), backend, clock=backend.clock)
