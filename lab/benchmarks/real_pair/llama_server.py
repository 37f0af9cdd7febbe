"""Runs llama-server in its own process, writes texts with it, and lists the measured settings.

Names and defaults are those of `llama-server --help` at the commit that was compiled:

    --spec-draft-n-max      draft tokens at most (3)
    --spec-draft-p-min      a draft ends before a token that is less likely for the draft model (0)
    --spec-ngram-*-size-n   tokens that must have occurred before (12; ngram-mod: n-match, 24)
    --spec-ngram-*-size-m   draft tokens at most (48; ngram-mod: n-max, 64)

The defaults of the n-gram types are for long repetitions, on processors where a wide pass costs little. So each is also
measured with the short ones of prompt lookup. `ngram-cache` has no settings but its files, and drafts 8 tokens at most.
A draft model drafts each of the given lengths, and the greatest of them as far as it is confident. It is also joined to
an n-gram type: that drafts first, and the model where it finds nothing.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import httpx

from drafter_client.statistics import Stats
from lab.benchmarks.harness.machine import running
from lab.benchmarks.harness.texts import Written

ALONE = "llama-server alone"
_P_MINS = (0.5, 0.75)  # `--spec-draft-p-min`
_N, _M = 3, 8  # tokens that must have occurred before, and draft tokens at most
_JOINED = "ngram-map-k"  # the n-gram type before a draft model


class Setting(NamedTuple):
    """A setting of llama-server. Without flags, it does not speculate."""

    name: str
    flags: tuple[str, ...] = ()


def shared_flags(target: Path, context: int, threads: int) -> list[str]:
    """The flags of all servers: the model, threads, context, number types and attention of our verifier."""
    number = str(threads)
    flags = ["--model", str(target), "--ctx-size", str(context), "--parallel", "1"]
    flags += ["--threads", number, "--threads-batch", number]
    flags += ["--flash-attn", "on", "--cache-type-k", "f16", "--cache-type-v", "f16"]
    # Nothing else takes time: no copies of earlier prompts, no search for what fits into memory, no log.
    return [*flags, "--cache-ram", "0", "--fit", "off", "--offline", "--no-ui", "--log-verbosity", "2"]


def settings(drafters: Mapping[str, Path], lengths: Iterable[int]) -> list[Setting]:
    """Every setting: alone, each n-gram type, and each draft model (by name) with each of `lengths`."""
    lengths = sorted(lengths)
    drafted = [each for name, path in drafters.items() for each in _by_draft_model(name, path, lengths)]
    return [Setting(ALONE), *_by_n_grams(), *drafted]


def _by_n_grams() -> Iterator[Setting]:
    mod = ("--spec-ngram-mod-n-match", str(_N), "--spec-ngram-mod-n-min", "1", "--spec-ngram-mod-n-max", str(_M))
    short = {kind: _sizes(kind) for kind in ("ngram-simple", "ngram-map-k", "ngram-map-k4v")} | {"ngram-mod": mod}
    for kind, sizes in short.items():
        yield Setting(kind, ("--spec-type", kind))
        yield Setting(f"{kind} {_N}/{_M}", ("--spec-type", kind, *sizes))
    yield Setting("ngram-cache", ("--spec-type", "ngram-cache"))


def _by_draft_model(drafter: str, path: Path, lengths: list[int]) -> Iterator[Setting]:
    model = ["--spec-draft-model", str(path), "--spec-draft-threads", "1", "--spec-draft-threads-batch", "1"]
    model += ["--spec-draft-type-k", "f16", "--spec-draft-type-v", "f16"]

    def setting(name: str, length: int, p_min: float, types: str = "draft-simple", *sizes: str) -> Setting:
        drafts = ("--spec-type", types, "--spec-draft-n-max", str(length), "--spec-draft-p-min", str(p_min), *sizes)
        name += f" {length}, p-min {p_min}" if p_min else f" {length}"
        return Setting(f"{name}, {drafter}", (*model, *drafts))

    ways = [*((length, 0.0) for length in lengths), *((lengths[-1], p_min) for p_min in _P_MINS)]
    for length, p_min in ways:
        yield setting("draft-simple", length, p_min)
    for length, p_min in (ways[0], ways[-1]):
        joined = f"{_JOINED},draft-simple", *_sizes(_JOINED)
        yield setting(f"{_JOINED} {_N}/{_M}, draft-simple", length, p_min, *joined)


def _sizes(kind: str) -> tuple[str, ...]:
    return (f"--spec-{kind}-size-n", str(_N), f"--spec-{kind}-size-m", str(_M))


UNTOLD = -1  # stands for the id of a token that ends within a character: llama-server does not send it
_PATIENCE = 120.0  # seconds until a server has loaded its models, and until it goes on with a text


class ServerFailed(RuntimeError):
    """llama-server ended, or answered with an error. The message quotes its output."""


@contextmanager
def llama_server(program: Path, flags: Sequence[str], *, speculates: bool) -> Iterator[httpx.Client]:
    """Run llama-server while the block lasts; yields a client of it as soon as its models are loaded.

    It listens on a Unix socket, so that no port need be found for it. Raises NotReady, and ServerFailed if it
    does not speculate where `speculates`, or does where not: it goes on without where a draft model does not fit.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_")}  # the user's own
    with TemporaryDirectory() as folder:
        socket = Path(folder, "llama.sock")
        # llama-server closes a connection that is idle for five seconds, as it is while others write.
        transport = httpx.HTTPTransport(uds=str(socket), limits=httpx.Limits(max_keepalive_connections=0))
        command = ("-x", str(program), "--host", str(socket), *flags)
        how: dict[str, Any] = {"ready": "/health", "environment": environment, "seconds": _PATIENCE}
        with (
            closing(httpx.Client(transport=transport, base_url="http://llama-server", timeout=_PATIENCE)) as client,
            running(*command, client=client, **how),
        ):
            [slot] = client.get("/slots").raise_for_status().json()
            if slot["speculative"] != speculates:
                raise ServerFailed(f"llama-server speculates: {slot['speculative']}")
            yield client


def complete(client: httpx.Client, tokens: int, temperature: float, prompt: list[int], seed: int) -> Written:
    """The text that follows a prompt, streamed, by this process's clock. All filters are off, as in specpair."""
    request: dict[str, Any] = {"prompt": prompt, "n_predict": tokens, "stream": True, "return_tokens": True}
    request |= {"seed": seed, "temperature": temperature, "samplers": ["temperature"]}
    request |= {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
    began = time.perf_counter()
    with client.stream("POST", "/completion", json=request) as response:
        if response.is_error:
            raise ServerFailed(f"llama-server answered {response.status_code}: {response.read().decode()}")
        return completed(began, ((time.perf_counter(), event) for event in events(response.iter_lines())))


def events(lines: Iterable[str]) -> Iterator[Any]:
    """The objects of a stream of server-sent events. Raises ServerFailed for an error."""
    for line in lines:
        field, _, value = line.partition(":")
        if field == "error":
            raise ServerFailed(f"llama-server: {value.strip()}")
        if field == "data" and value.strip() != "[DONE]":
            event = json.loads(value)
            if "error" in event:
                raise ServerFailed(f"llama-server: {event['error']}")
            yield event


def completed(began: float, arrived: Iterable[tuple[float, Any]]) -> Written:
    """The text of these events with their arrival times, without an end token, as in specpair."""
    tokens: list[int] = []
    times: list[float] = []
    timings: dict[str, Any] | None = None
    stopped = False
    for moment, event in arrived:
        if event["tokens"]:
            times.append(moment)
            tokens += [UNTOLD] * (event["tokens_predicted"] - len(tokens) - len(event["tokens"])) + event["tokens"]
        timings, stopped = event.get("timings", timings), event.get("stop_type") == "eos"
    if timings is None or not tokens:
        raise ServerFailed("llama-server ended a text without its timings")
    tokens += [UNTOLD] * (timings["predicted_n"] - len(tokens))
    stats = Stats(drafted=timings.get("draft_n", 0), accepted=timings.get("draft_n_accepted", 0))
    return Written(tokens[:-1] if stopped else tokens, 1e3 * (times[0] - began), times[-1] - times[0], stats)


def built() -> tuple[Path, str]:
    """The program llama-server, compiled first if needed, and the commit of its source. If compiling fails, this
    program ends and the script prints why."""
    script = [str(Path(__file__).with_name("build_llama_server"))]
    environment = os.environ | {"PYTHON": sys.executable}
    ran = subprocess.run(script, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment)
    if ran.returncode:
        raise SystemExit(ran.returncode)
    program, *commit = ran.stdout.split()
    return Path(program), commit[0] if commit else "unknown"
