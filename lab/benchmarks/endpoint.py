"""What a text costs through OpenAI's endpoint beside the library, how 32 streams share it, and what overload does.

Method. A verifier process serves the shipped target, paced to 25 ms a step; the shipped draft model drafts, on one
thread. Cost: the same texts by turns, by the library (`Pair` in this process) and through `drafter serve` (a process of
its own), streamed, once with a bare HTTP client and once with OpenAI's client, which has a price of its own. Times are
those at which a program has the tokens. CPU time is that of this process and of `drafter serve`.
Streams: 32 at once, through `drafter serve` and at the verifier; the rate of each. Overload: first as many clients as
there are places, each with one request after the other, which gives the peak; then requests arrive at `--times` times
that rate, evenly. Goodput counts the tokens of complete texts. A client that was refused comes back once, when the
Retry-After is over.

    python -m lab.benchmarks.endpoint [--texts 12] [--tokens 96] [--seconds 20]
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import httpx
import openai

from drafter_client import DraftModel, LoadOptions, Options, Pair
from lab.benchmarks.harness.machine import used_here_and_by
from lab.benchmarks.harness.models import DRAFTERS, drafter_serve, held_out_prompts, paced
from lab.benchmarks.harness.report import Report, options_of
from lab.benchmarks.harness.texts import Written, by_library, by_turns, rate
from specpair.child_processes.serving import Server
from specpair.command_line.start import keep_loaded_objects
from specpair.numbers import quantile

FLAGS = {"texts": 12, "tokens": 96, "streams": 32, "places": 4, "times": 3.0, "seconds": 20.0, "short": 24}


def main() -> None:
    keep_loaded_objects()  # pauses of this process, which sends the requests, would count as the service's
    options = options_of(__doc__, FLAGS)
    report = Report("endpoint", options)
    with paced(4) as server, drafter_serve(server.url, 1, 4) as service:
        _cost(report, options, server, service)
    with paced(options.streams) as server:
        _streams(report, options, "the verifier, target alone", server.url)
        with drafter_serve(server.url, options.streams, 0) as service:
            _streams(report, options, "drafter serve", service.url)
    with paced(options.places) as server:
        _overload(report, options, "the verifier, target alone", server)
        with drafter_serve(server.url, options.places, 4 * options.places) as service:
            _overload(report, options, "drafter serve", service)
    report.save()


def _cost(report: Report, options: argparse.Namespace, server: Server, service: Server) -> None:
    drafter = DraftModel(DRAFTERS["small"], engine=LoadOptions(threads=1))
    used = dict.fromkeys(("library", "endpoint", "by OpenAI's client"), 0.0)
    with (
        Pair(server.url, drafter, branches=2) as pair,
        httpx.Client(trust_env=False, timeout=600) as http,
        openai.OpenAI(base_url=f"{service.url}/v1", api_key="-", max_retries=0) as client,
    ):

        def library(prompt: str, seed: int) -> Written:
            return by_library(pair, prompt, Options(max_tokens=options.tokens, temperature=1.0, seed=seed))

        def endpoint(prompt: str, seed: int) -> Written:
            began = time.perf_counter()
            body = {"prompt": prompt, "max_tokens": options.tokens, "seed": seed, "stream": True}
            with http.stream("POST", f"{service.url}/v1/completions", json=body) as reply:
                return written_at(began, _moments(reply))

        def by_client(prompt: str, seed: int) -> Written:
            began = time.perf_counter()
            stream = client.completions.create(
                model="", prompt=prompt, max_tokens=options.tokens, seed=seed, stream=True
            )
            return written_at(began, [time.perf_counter() for chunk in stream if chunk.choices[0].text])

        def written_at(began: float, moments: list[float]) -> Written:
            # The characters stand for the tokens here: one text has equally many in every way.
            return Written([0] * options.tokens, 1e3 * (moments[0] - began), moments[-1] - moments[0])

        def metered(name: str, way: Callable[[str, int], Written]) -> Callable[[str, int], Written]:
            def run(prompt: str, seed: int) -> Written:
                before = used_here_and_by(service.process.pid)
                written = way(prompt, seed)
                used[name] += used_here_and_by(service.process.pid) - before
                return written

            return run

        prompts = held_out_prompts(options.texts + 1)
        ways = dict(zip(used, (library, endpoint, by_client), strict=True))
        for way in ways.values():
            way(prompts[0], 0)
        written = by_turns({name: metered(name, way) for name, way in ways.items()}, prompts[1:])
    seconds = {name: sum(text.ttft_ms / 1e3 + text.seconds for text in texts) for name, texts in written.items()}
    first = {name: median(text.ttft_ms for text in texts) for name, texts in written.items()}
    report.line(f"a text of {options.tokens} tokens, {options.texts} of them")
    for name, texts in written.items():
        cpu = 1e3 * used[name] / (options.tokens * len(texts))
        report.line(
            f"  {name:18} {seconds[name] / len(texts):.3f} s  TTFT {first[name]:.1f} ms  {rate(texts):.1f} tokens/s"
            f"  {cpu:.2f} ms CPU a token"
        )
    for name in list(used)[1:]:
        pairs = list(zip(written["library"], written[name], strict=True))
        ratios = [(there.ttft_ms / 1e3 + there.seconds) / (here.ttft_ms / 1e3 + here.seconds) for here, there in pairs]
        later = [there.ttft_ms - here.ttft_ms for here, there in pairs]
        report.line(
            f"  {name} over library: time {seconds[name] / seconds['library']:.3f} (median of the texts "
            f"{median(ratios):.3f}), TTFT {median(later):+.1f} ms (median of the texts)"
        )


def _moments(reply: httpx.Response) -> list[float]:
    """When the parts of a streamed text came."""
    return [
        time.perf_counter()
        for line in reply.iter_lines()
        if line.startswith("data: {") and json.loads(line[6:])["choices"][0]["text"]
    ]


def _streams(report: Report, options: argparse.Namespace, name: str, url: str) -> None:
    def one(number: int) -> float:
        body = {"prompt": prompts[number % len(prompts)], "max_tokens": options.tokens, "seed": number, "stream": True}
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=600, trust_env=False) as reply:
            if reply.status_code != 200:
                raise SystemExit(f"{name} replied {reply.status_code}: {reply.read().decode()}")
            moments = _moments(reply)
        return float(options.tokens - 1) / (moments[-1] - moments[0])

    prompts = held_out_prompts(8)
    with ThreadPoolExecutor(options.streams) as threads:
        rates = sorted(threads.map(one, range(options.streams)))
    report.line(
        f"{options.streams} streams at once, {name}: {sum(rates):.0f} tokens/s; median {median(rates):.2f}, slowest "
        f"{rates[0]:.2f} tokens/s: {rates[0] / median(rates):.2f} of the median"
    )


def _overload(report: Report, options: argparse.Namespace, name: str, service: Server) -> None:
    body = {"prompt": held_out_prompts(1)[0], "max_tokens": options.short}
    load = Load(service.url, body, options.short)
    best = peak(load, options.places, options.seconds / 2)
    found = offered(load, options.times * best, options.seconds)
    report.line(f"overload, {name}: peak {best * options.short:.1f} tokens/s with {options.places} clients")
    for line in found.lines(best):
        report.line(f"  {line}")


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


if __name__ == "__main__":
    main()
