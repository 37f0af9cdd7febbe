"""A llama-server in a process of its own, and the texts that it writes."""

import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from drafter_client.statistics import Stats
from lab.benchmarks.harness.texts import Written
from specpair.child_processes.children import child

UNTOLD = -1  # stands for the id of a token that ends within a character: llama-server does not send it
_PATIENCE = 120.0  # seconds until a server has loaded its models, and until it goes on with a text
_LAST_LINES = 20


class ServerFailed(RuntimeError):
    """llama-server ended, or answered with an error; the message has what it said."""


@contextmanager
def llama_server(program: Path, flags: Sequence[str], *, speculates: bool) -> Iterator[httpx.Client]:
    """Run llama-server while the block lasts; yields a client of it as soon as its models are loaded.

    It listens on a Unix socket, so that no port need be found for it. Raises ServerFailed if it ends before, and if it
    does not speculate where `speculates`, or does where not: it goes on without where a draft model does not fit.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_")}  # the user's own
    with TemporaryDirectory() as folder:
        socket, log = Path(folder, "llama.sock"), Path(folder, "log")
        # llama-server closes a connection that is idle for five seconds, as it is while others write.
        transport = httpx.HTTPTransport(uds=str(socket), limits=httpx.Limits(max_keepalive_connections=0))
        with (
            open(log, "w", encoding="utf-8") as file,
            child("-x", str(program), "--host", str(socket), *flags, environment=environment, stdout=file.fileno(),
                  stderr=subprocess.STDOUT) as process,
            closing(httpx.Client(transport=transport, base_url="http://llama-server", timeout=_PATIENCE)) as client,
        ):  # fmt: skip
            _wait(client, process, log)
            [slot] = client.get("/slots").raise_for_status().json()
            if slot["speculative"] != speculates:
                raise ServerFailed(f"llama-server speculates: {slot['speculative']}; its log ends with\n{_end_of(log)}")
            yield client


def complete(client: httpx.Client, tokens: int, temperature: float, prompt: list[int], seed: int) -> Written:
    """The text that follows a prompt, streamed, by this process's clock. All filters are off, as by default in ours."""
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
    """The text of these events, each with the moment when it arrived here; without an end token, as ours."""
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


def _wait(client: httpx.Client, process: "subprocess.Popen[str]", log: Path) -> None:
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            if client.get("/health").is_success:  # 503 while it loads
                return
        except httpx.TransportError:
            pass  # it does not listen yet
        if process.poll() is not None:
            raise ServerFailed(f"llama-server ended with status {process.returncode}; its log:\n{_end_of(log)}")
        if time.monotonic() > give_up:
            raise ServerFailed(f"llama-server was not ready within {_PATIENCE:g} s; its log:\n{_end_of(log)}")
        time.sleep(0.05)


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:])
