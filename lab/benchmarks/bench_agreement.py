"""`drafter bench` beside aiperf 0.13, on the same load: TTFT, ITL and latency agree within 5 %.

Method. An endpoint of this process streams `--tokens` words for each request, on a schedule that its prompt fixes: the
first after 100 to 300 ms, then chunks of one to four words, as speculation makes them, a chunk 30 ms a word after the
one before. Both tools send it the same prompts by turns, `--rounds` times each, `--at-once` at a time, and count tokens
by what the endpoint tells (`usage`). aiperf is a program of an environment of its own:

    python -m venv aiperf && aiperf/bin/pip install aiperf==0.13.0
    python -m lab.benchmarks.bench_agreement --aiperf aiperf/bin/aiperf [--url http://HOST:PORT --model NAME]

`--url`: another endpoint than the paced one; its times differ from one run to the next, and so do the tools' figures.
"""

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import Any

from lab.bench.record_files import read_results
from lab.benchmarks.harness.report import Report, options_of

FLAGS = {
    **{"requests": 24, "at-once": 2, "tokens": 48, "rounds": 2},
    "aiperf": {"default": "aiperf", "help": "aiperf's program"},
    "url": {"help": "another endpoint, without /v1"},
    "model": {"default": "paced", "help": "the model to ask for"},
}
MEASURES = {"ttft_ms": "time_to_first_token", "itl_ms": "inter_token_latency", "latency_ms": "request_latency"}
ALLOWED = 0.05
_TOKENIZER: dict[str, Any] = {
    "version": "1.0",
    **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder")),
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "word": 1}, "unk_token": "[UNK]"},
}


def main() -> int:
    options = options_of(__doc__, FLAGS)
    prompts = [f"prompt {number}: go on" for number in range(options.requests)]
    report = Report("bench_agreement", options)
    with tempfile.TemporaryDirectory() as name, paced_endpoint() as paced:
        folder, url = Path(name), options.url or paced
        found: dict[str, dict[str, list[float]]] = {tool: {key: [] for key in MEASURES} for tool in ("aiperf", "bench")}
        for number in range(options.rounds):
            for tool, measured in (("aiperf", by_aiperf), ("bench", by_bench)):
                for key, values in measured(folder / f"{tool}-{number}", url, prompts, options).items():
                    found[tool][key] += values
    report.line(f"{options.rounds} times {options.requests} requests, {options.at_once} at once, each tool")
    report.line(
        f"{'':10}  {'aiperf mean':>11}  {'bench mean':>11}  ratio  {'aiperf p50':>11}  {'bench p50':>11}  ratio"
    )
    worst = 0.0
    for key in MEASURES:
        theirs, ours = found["aiperf"][key], found["bench"][key]
        assert len(theirs) == len(ours) == options.rounds * options.requests, (key, len(theirs), len(ours))
        line = f"{key:10}"
        for figure in (fmean, median):
            ratio = figure(ours) / figure(theirs)
            worst = max(worst, abs(ratio - 1))
            line += f"  {figure(theirs):11.2f}  {figure(ours):11.2f}  {ratio:5.3f}"
        report.line(line)
    report.line(f"largest difference {worst:.1%}, {ALLOWED:.0%} are allowed")
    report.save()
    return int(worst > ALLOWED)


def by_aiperf(folder: Path, url: str, prompts: list[str], options: Any) -> dict[str, list[float]]:
    """Values of each request, in milliseconds."""
    folder.mkdir()
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text(json.dumps(_TOKENIZER))
    (tokenizer / "config.json").write_text('{"model_type": "llama"}')
    (tokenizer / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in prompts))
    _run(
        *(options.aiperf, "profile", "-m", options.model, "--tokenizer", str(tokenizer), "--url", url),
        *("--endpoint-type", "completions", "--streaming", "--use-server-token-count", "--ui", "none"),
        *("--input-file", str(folder / "prompts.jsonl"), "--custom-dataset-type", "single_turn"),
        *("--extra-inputs", f"max_tokens:{options.tokens}", "--extra-inputs", "ignore_eos:true"),
        *("--extra-inputs", "temperature:0", "--concurrency", str(options.at_once)),
        *("--request-count", str(len(prompts)), "--warmup-request-count", "1", "--no-gpu-telemetry"),
        *("--no-server-metrics", "--output-artifact-dir", str(folder)),
    )
    lines = (folder / "profile_export.jsonl").read_text().splitlines()
    metrics = [record["metrics"] for record in map(json.loads, lines) if _is_measured(record)]
    return {key: [each[name]["value"] for each in metrics if name in each] for key, name in MEASURES.items()}


def _is_measured(record: dict[str, Any]) -> bool:
    return bool(record["metadata"].get("benchmark_phase", "profiling") == "profiling")


def by_bench(folder: Path, url: str, prompts: list[str], options: Any) -> dict[str, list[float]]:
    """Values of each request, in milliseconds."""
    case = {
        "group": "agreement",
        "description": "The same requests as aiperf's.",
        "api": "completions",
        "prompts": [{"text": each} for each in prompts],
        "requests": len(prompts),
        "concurrency": options.at_once,
        "output_tokens": options.tokens,
        "ignore_eos": True,
        "sampling": {"seed": 0},
    }
    path = folder.with_suffix(".yaml")
    path.write_text(json.dumps(case))
    _run(
        *(sys.executable, "-m", "drafter_client", "bench", "--side", f"side={url}/v1", "--model", options.model),
        *("--cases", str(path), "--repetitions", "1", "--warm-up", "1", "--output", str(folder)),
    )
    requests = read_results(folder).requests
    return {key: [value for each in requests if (value := getattr(each, key)) is not None] for key in MEASURES}


def _run(*command: str) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {ran.returncode}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")


@contextmanager
def paced_endpoint() -> Iterator[str]:
    """Serve OpenAI's completions in a thread, on a schedule that the prompt fixes. Yields the address."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(_serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.close()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of a connection."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            begun = asyncio.get_running_loop().time()
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                ),
                0,
            )
            body = json.loads(await reader.readexactly(length) or b"{}")
            if body and b" /v1/completions " not in head:
                writer.write(_head("application/json", "Content-Length: 2", "404 Not Found") + b"{}")
            elif not body:
                models = {"object": "list", "data": [{"id": "paced", "object": "model", "owned_by": "benchmark"}]}
                said = json.dumps(models).encode()
                writer.write(_head("application/json", f"Content-Length: {len(said)}") + said)
            elif body.get("stream"):
                await _stream(writer, body, begun)
            else:
                count = int(body.get("max_tokens", 16))
                reply = {
                    "id": "c",
                    "object": "text_completion",
                    "model": "paced",
                    "choices": [{"index": 0, "text": " word" * count, "finish_reason": "length"}],
                    "usage": {"prompt_tokens": 4, "completion_tokens": count, "total_tokens": 4 + count},
                }
                said = json.dumps(reply).encode()
                writer.write(_head("application/json", f"Content-Length: {len(said)}") + said)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the client has left
    finally:
        writer.close()


async def _stream(writer: asyncio.StreamWriter, body: dict[str, Any], begun: float) -> None:
    loop, count = asyncio.get_running_loop(), int(body.get("max_tokens", 16))
    shape = random.Random(str(body["prompt"]))
    writer.write(_head("text/event-stream", "Transfer-Encoding: chunked"))
    due, left = begun + shape.uniform(0.1, 0.3), count
    first = True
    while left:
        words = 1 if first else min(left, shape.randint(1, 4))
        due += 0.0 if first else 0.03 * words
        await asyncio.sleep(max(0.0, due - loop.time()))
        left -= words
        finish = None if left else "length"
        _event(writer, {"choices": [{"index": 0, "text": " word" * words, "finish_reason": finish}]})
        await writer.drain()
        first = False
    usage = {"prompt_tokens": 4, "completion_tokens": count, "total_tokens": 4 + count}
    _event(writer, {"choices": [], "usage": usage})
    writer.write(_chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def _event(writer: asyncio.StreamWriter, fields: dict[str, Any]) -> None:
    event = {"id": "c", "object": "text_completion", "model": "paced"} | fields
    writer.write(_chunked(b"data: " + json.dumps(event).encode() + b"\n\n"))


def _chunked(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _head(kind: str, other: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{other}\r\n\r\n".encode()


if __name__ == "__main__":
    sys.exit(main())
