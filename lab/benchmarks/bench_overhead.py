"""What `drafter bench` itself costs: how late it notes a chunk, and how much of a processor it takes.

Method. A stand-in of an endpoint, a process of its own, sends a chunk each 2 ms, which says when it was sent; both ends
have the same clock. The client reads one stream, then four at once. The delay is from sending (the server's own way to
its socket is in it) to the time that a record would have. CPU is this process's, over all of its chunks.

    python -m lab.benchmarks.bench_overhead [--tokens 500]
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from lab.bench.endpoint.client import EndpointClient, Exchange
from lab.bench.endpoint.side import Side
from lab.benchmarks.harness.report import Report, options_of
from specpair.child_processes.serving import serve
from specpair.quantile import quantile

STEP = 0.002  # seconds from one chunk to the next
STREAMS = (1, 4)
SHARES = (0.5, 0.9, 0.99)

stand_in = FastAPI()


@stand_in.post("/v1/completions")
async def completions(request: Request) -> StreamingResponse:
    """A chunk each `STEP`, whose text is the time at which it was sent."""
    body = await request.json()
    return StreamingResponse(_chunks(body["max_tokens"]), media_type="text/event-stream")


async def _chunks(count: int) -> AsyncIterator[str]:
    due = time.perf_counter()
    for _ in range(count):
        due += STEP
        await asyncio.sleep(due - time.perf_counter())
        choice = {"index": 0, "text": f"{time.perf_counter():.6f} ", "logprobs": None, "finish_reason": None}
        chunk = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


def main() -> None:
    options = options_of(__doc__, {"tokens": 500, "passes": 3})
    report = Report("bench_overhead", options)
    with serve("lab.benchmarks.bench_overhead:stand_in") as served:
        for number in range(options.passes):
            for streams in STREAMS:
                report.line(f"pass {number + 1}: {asyncio.run(_measured(served.url, streams, options.tokens))}")
    report.save()


async def _measured(url: str, streams: int, tokens: int) -> str:
    client = EndpointClient(Side(name="a", url=f"{url}/v1"), timeout=60)
    try:
        await _read(client, streams, 20)
        began = time.process_time()
        exchanges = await _read(client, streams, tokens)
        cpu = (time.process_time() - began) / (streams * tokens)
    finally:
        await client.close()
    delays = [
        1000 * (each.started + came - float(sent))
        for each in exchanges
        for came, sent in zip(each.chunks, each.reply.parts, strict=True)
    ]
    told = ", ".join(f"p{100 * share:g} {quantile(delays, share):.2f} ms" for share in SHARES)
    share = cpu * streams / STEP
    return f"streams {streams}: late by {told}; CPU {1e6 * cpu:.0f} us a chunk, {share:.1%} of a core"


async def _read(client: EndpointClient, streams: int, tokens: int) -> list[Exchange]:
    asked = (client.ask("completions", {"max_tokens": tokens}) for _ in range(streams))
    return list(await asyncio.gather(*asked))


if __name__ == "__main__":
    main()
