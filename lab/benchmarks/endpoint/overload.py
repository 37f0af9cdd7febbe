"""Requests at a steady rate, whatever becomes of them: goodput, refusals and the health of an overloaded service."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from specpair.numbers import quantile

_HEALTH_EVERY = 0.1  # seconds
_PATIENCE = 600.0  # seconds


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked: `body`, of the completions endpoint at `url`, for texts of `tokens` tokens."""

    url: str
    body: dict[str, Any]
    tokens: int

    async def ask(self, http: httpx.AsyncClient, seed: int) -> httpx.Response:
        return await http.post(f"{self.url}/v1/completions", json=self.body | {"seed": seed})


@dataclass(slots=True)
class Outcome:
    """What became of the requests."""

    seconds: float
    tokens: int
    offered: int = 0
    done: list[float] = field(default_factory=list)  # when the texts that were generated ended, in seconds
    refused: list[float] = field(default_factory=list)  # seconds until the refusal
    waits: list[int] = field(default_factory=list)  # Retry-After
    admitted_later: int = 0  # of those refused, how many were admitted when they came back
    failed: list[int] = field(default_factory=list)  # other statuses
    health: list[float] = field(default_factory=list)  # seconds that `/health` took
    idle: bool = False  # whether a text was generated at once after it all

    @property
    def goodput(self) -> float:
        """Texts a second that ended within the time."""
        return sum(at <= self.seconds for at in self.done) / self.seconds

    def lines(self, peak: float) -> Iterator[str]:
        yield (
            f"{self.offered} requests in {self.seconds:.0f} s: {len(self.done)} generated, {len(self.refused)} refused"
            f" ({self.admitted_later} of them admitted when they came back), {len(self.failed)} failed"
        )
        yield f"goodput {self.goodput * self.tokens:.1f} tokens/s, {self.goodput / peak:.2f} of the peak"
        if self.refused:
            yield (
                f"refused within {1e3 * quantile(self.refused, 0.5):.0f} ms (median), "
                f"{1e3 * quantile(self.refused, 0.95):.0f} (p95), {1e3 * max(self.refused):.0f} (greatest); "
                f"Retry-After {min(self.waits)} to {max(self.waits)} s"
            )
        yield (
            f"/health {1e3 * quantile(self.health, 0.5):.0f} ms (median), {1e3 * quantile(self.health, 0.95):.0f} "
            f"(p95); afterwards a text is generated at once: {'yes' if self.idle else 'NO'}"
        )


def peak(load: Load, clients: int, seconds: float) -> float:
    """Texts a second with `clients` that ask one request after the other."""

    async def run() -> float:
        done = 0
        async with _http() as http:

            async def client(number: int) -> None:
                nonlocal done
                while time.monotonic() < end:
                    reply = await load.ask(http, number)
                    reply.raise_for_status()
                    done += time.monotonic() < end

            end = time.monotonic() + seconds
            await asyncio.gather(*(client(number) for number in range(clients)))
        return done / seconds

    return asyncio.run(run())


def offered(load: Load, per_second: float, seconds: float) -> Outcome:
    """What becomes of requests that arrive evenly for `seconds`."""

    async def run() -> Outcome:
        found = Outcome(seconds, load.tokens)
        async with _http() as http, _http() as other:
            began = time.monotonic()

            async def request(number: int, again: bool = False) -> None:
                asked = time.monotonic()
                reply = await load.ask(http, number)
                if reply.status_code == 200:
                    found.done.append(time.monotonic() - began)
                    found.admitted_later += again
                elif reply.status_code == 503:
                    if again:
                        return
                    found.refused.append(time.monotonic() - asked)
                    found.waits.append(int(reply.headers["Retry-After"]))
                    await asyncio.sleep(found.waits[-1])
                    await request(number, again=True)
                else:
                    found.failed.append(reply.status_code)

            async def watch() -> None:
                while True:
                    asked = time.monotonic()
                    await other.get(f"{load.url}/health")
                    found.health.append(time.monotonic() - asked)
                    await asyncio.sleep(_HEALTH_EVERY)

            watching = asyncio.create_task(watch())
            async with asyncio.TaskGroup() as group:
                found.offered = int(per_second * seconds)
                for number in range(found.offered):
                    await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
                    group.create_task(request(number))
            watching.cancel()
            asked = time.monotonic()
            alone = (await load.ask(http, 0)).status_code == 200
            found.idle = alone and time.monotonic() - asked < 10.0 * load.tokens / 25.0
        return found

    return asyncio.run(run())


def _http() -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
    return httpx.AsyncClient(timeout=_PATIENCE, limits=limits, trust_env=False)
