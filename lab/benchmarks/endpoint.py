"""Measures the OpenAI endpoint: its cost over the library, the throughput of 32 streams, and its behaviour in overload.

Method. A verifier process serves the shipped target, paced to 25 ms a step; the shipped draft model drafts, on one
thread. Cost: the same texts by turns, by the library (`Pair` in this process) and through `drafter serve` (a process of
its own), streamed. Times are those at which a program has the tokens. CPU time is that of this process and of `drafter
serve`.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median

import httpx

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
    used = {"library": 0.0, "endpoint": 0.0}
    with Pair(server.url, drafter, branches=2) as pair, httpx.Client(trust_env=False, timeout=600) as http:

        def library(prompt: str, seed: int) -> Written:
            return by_library(pair, prompt, Options(max_tokens=options.tokens, temperature=1.0, seed=seed))

        def endpoint(prompt: str, seed: int) -> Written:
            began = time.perf_counter()
            body = {"prompt": prompt, "max_tokens": options.tokens, "seed": seed, "stream": True}
            with http.stream("POST", f"{service.url}/v1/completions", json=body) as reply:
                moments = _moments(reply)
            # The characters stand for the tokens here: one text has equally many in both ways.
            return Written([0] * options.tokens, 1e3 * (moments[0] - began), moments[-1] - moments[0])

        def metered(way: Callable[[str, int], Written], prompt: str, seed: int) -> Written:
            before = used_here_and_by(service.process.pid)
            written = way(prompt, seed)
            used[way.__name__] += used_here_and_by(service.process.pid) - before
            return written

        first, *prompts = held_out_prompts(options.texts + 1)
        ways = {way.__name__: partial(metered, way) for way in (library, endpoint)}
        for way in (library, endpoint):
            way(first, 0)
        written = by_turns(ways, prompts)
    report.line(f"a text of {options.tokens} tokens, {options.texts} of them")
    for name, texts in written.items():
        first_ms = median(text.ttft_ms for text in texts)
        report.line(
            f"  {name:9} {sum(map(_whole, texts)) / len(texts):.3f} s  TTFT {first_ms:.1f} ms"
            f"  {rate(texts):.1f} tokens/s  {1e3 * used[name] / (options.tokens * len(texts)):.2f} ms CPU a token"
        )
    pairs = list(zip(written["library"], written["endpoint"], strict=True))
    ratio = sum(map(_whole, written["endpoint"])) / sum(map(_whole, written["library"]))
    each = median(_whole(there) / _whole(here) for here, there in pairs)
    later = median(there.ttft_ms - here.ttft_ms for here, there in pairs)
    told = f"time {ratio:.3f} (median of the texts {each:.3f}), TTFT {later:+.1f} ms (median of the texts)"
    report.line(f"  endpoint over library: {told}")


def _whole(text: Written) -> float:
    """Seconds of a text, including its prompt."""
    return text.ttft_ms / 1e3 + text.seconds


def _moments(reply: httpx.Response) -> list[float]:
    """The arrival times of a streamed text's parts."""
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
    found = asyncio.run(Overload(service.url, options.places, options.short).run(options.times, options.seconds))
    report.line(f"overload, {name}: {found[0]}", *(f"  {line}" for line in found[1:]))


_HEALTH_EVERY = 0.1  # seconds
_AT_ONCE = 10.0 / 25.0  # seconds a token in which a text that is alone is generated: ten times what it takes


class Overload:
    """Requests texts of `tokens` tokens from the endpoint at `url`: first at its peak rate, then faster."""

    def __init__(self, url: str, clients: int, tokens: int) -> None:
        self._url, self._clients, self._tokens = url, clients, tokens
        self._body = {"prompt": held_out_prompts(1)[0], "max_tokens": tokens}
        self._done: list[float] = []  # when the texts that were generated ended, in seconds
        self._refused: list[float] = []  # seconds until the refusal
        self._waits: list[int] = []  # Retry-After
        self._admitted_later = self._failed = 0  # of those refused, when they came back; with another status
        self._health: list[float] = []  # seconds that `/health` took

    async def run(self, times: float, seconds: float) -> list[str]:
        """Find the peak in half of `seconds`, then offer a multiple of it for `seconds`. Returns the outcome."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
        async with httpx.AsyncClient(base_url=self._url, timeout=600.0, limits=limits, trust_env=False) as http:
            peak = await self._peak(http, seconds / 2)
            offered = await self._offer(http, times * peak, seconds)
            asked = time.monotonic()
            alone = (await self._ask(http, 0)).status_code == 200
            idle = alone and time.monotonic() - asked < _AT_ONCE * self._tokens
        goodput = sum(at <= seconds for at in self._done) / seconds
        lines = [
            f"peak {peak * self._tokens:.1f} tokens/s with {self._clients} clients",
            f"{offered} requests in {seconds:.0f} s: {len(self._done)} generated, {len(self._refused)} refused"
            f" ({self._admitted_later} of them admitted when they came back), {self._failed} failed",
            f"goodput {goodput * self._tokens:.1f} tokens/s, {goodput / peak:.2f} of the peak",
        ]
        if self._refused:
            lines.append(
                f"refused within {_milliseconds(self._refused)}, {1e3 * max(self._refused):.0f} (greatest); "
                f"Retry-After {min(self._waits)} to {max(self._waits)} s"
            )
        at_once = f"afterwards a text is generated at once: {'yes' if idle else 'NO'}"
        return [*lines, f"/health {_milliseconds(self._health)}; {at_once}"]

    async def _ask(self, http: httpx.AsyncClient, seed: int) -> httpx.Response:
        return await http.post("/v1/completions", json=self._body | {"seed": seed})

    async def _peak(self, http: httpx.AsyncClient, seconds: float) -> float:
        """Texts a second with clients that ask one request after the other."""
        done, end = 0, time.monotonic() + seconds

        async def client(number: int) -> None:
            nonlocal done
            while time.monotonic() < end:
                (await self._ask(http, number)).raise_for_status()
                done += time.monotonic() < end

        await asyncio.gather(*map(client, range(self._clients)))
        return done / seconds

    async def _offer(self, http: httpx.AsyncClient, per_second: float, seconds: float) -> int:
        """Send requests evenly for `seconds`, and watch `/health`. Returns how many."""
        began, count = time.monotonic(), int(per_second * seconds)
        async with (
            httpx.AsyncClient(base_url=self._url, timeout=600.0, trust_env=False) as other,
            asyncio.TaskGroup() as group,
        ):
            watching = group.create_task(self._watch(other))
            async with asyncio.TaskGroup() as requests:
                for number in range(count):
                    await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
                    requests.create_task(self._request(http, number, began))
            watching.cancel()
        return count

    async def _request(self, http: httpx.AsyncClient, number: int, began: float, again: bool = False) -> None:
        asked = time.monotonic()
        reply = await self._ask(http, number)
        if reply.status_code == 200:
            self._done.append(time.monotonic() - began)
            self._admitted_later += again
        elif reply.status_code != 503:
            self._failed += 1
        elif not again:
            self._refused.append(time.monotonic() - asked)
            self._waits.append(int(reply.headers["Retry-After"]))
            await asyncio.sleep(self._waits[-1])
            await self._request(http, number, began, again=True)

    async def _watch(self, http: httpx.AsyncClient) -> None:
        while True:
            asked = time.monotonic()
            await http.get("/health")
            self._health.append(time.monotonic() - asked)
            await asyncio.sleep(_HEALTH_EVERY)


def _milliseconds(seconds: list[float]) -> str:
    return f"{1e3 * quantile(seconds, 0.5):.0f} ms (median), {1e3 * quantile(seconds, 0.95):.0f} (p95)"


if __name__ == "__main__":
    main()
