"""What clients that ask for too much cost the others: the time of `/live` and `/health`, and the service's memory.

Each case runs in a process of its own against a service under plain uvicorn, with the models that ship, one thread
each. Meanwhile another connection asks for `/live` and `/health` in turns, every ten milliseconds. Memory is the
resident set: when idle, at its peak during the case, and two seconds after.

    heads              request heads of many short headers without end, on four connections
    header line        one header without end, on four connections
    ahead              requests sent ahead of their replies without end, on four connections
    ids                60 bodies of 4 MB at once: a prompt of 840,000 token ids
    biases             20 bodies at once, each with as many biases of logits as are taken
    keys               20 bodies at once, each with 25,000 parameters that there are not
    texts              20 bodies of 4 MB at once: one long text
    longest prompts    100 prompts as long as the context may hold by their bytes
    schemas            40 texts under schemas of 250,000 characters, of which no two are alike, four at a time
    schemas at once    40 of them at once
    bodies at once     40 texts at once without a schema, in bodies of the same length
    expressions        100 texts under regular expressions whose masks take long, four at a time
    choices            1,024 choices: 8 requests of 128 texts each, sent again while there is no place
    unread streams     8 streams of 128 texts each, up to 200 tokens long, that nobody reads
    slow readers       100 connections that ask for the vocabulary ten times each, and read nothing

python -m lab.benchmarks.bounds [--ends verifier drafter] [--cases heads ids …] [--save]
"""

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count, repeat
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlsplit

from drafter_client import DraftModel, LoadOptions, Options, Pair
from drafter_client.cli.program import SWITCH_INTERVAL
from drafter_client.serve.app import create_app
from lab.benchmarks.harness.report import Report, options_of
from specpair.child_processes.children import child
from specpair.child_processes.serving import Server, serve, verifier
from specpair.command_line.start import keep_loaded_objects
from specpair.speculation.sampling.processors import MOST_BIASES

_SECONDS, _REST = 5.0, 2.0  # of a case without an end; after each case
_EVERY = 0.01  # seconds between two pings
_MEGABYTES = 4 * 1024 * 1024 - 64
_GET = b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_CASE = "import os, sys; os.nice(19); from lab.benchmarks.bounds import CASES; CASES[sys.argv[1]](sys.argv[2])"


def main() -> None:
    flags = {
        "ends": {"default": ["verifier", "drafter"], "choices": ("verifier", "drafter")},
        "cases": {"default": list(CASES), "choices": tuple(CASES)},
    }
    options = options_of(__doc__, flags)
    report = Report("bounds", options)
    report.line("memory in MB: idle, peak above idle, kept after; /live and /health in ms: median, p95, longest")
    for end in options.ends:
        with _served(end) as server:
            _measure(server, None)  # warms up
            for case in options.cases:
                report.line(f"{end:8}  {case or 'nothing':15}  {_measure(server, case)}")
    report.save()


@contextmanager
def _served(end: str) -> Iterator[Server]:
    with verifier(threads=1, slots=4, context=2048) as target:
        if end == "verifier":
            _until_ready(target)
            yield target
        else:
            _until_ready(target)
            with serve("lab.benchmarks.bounds:drafter()", {"BOUNDS_VERIFIER": target.url}) as server:
                yield server


def drafter() -> object:
    """The application of `drafter serve`, for `_served`, as its program runs it."""
    import os

    sys.setswitchinterval(SWITCH_INTERVAL)
    pair = Pair(os.environ["BOUNDS_VERIFIER"], DraftModel(engine=LoadOptions(threads=1)), texts=4)
    app = create_app(pair, Options(), texts=4, queue=16)
    keep_loaded_objects()
    return app


def _until_ready(server: Server) -> None:
    while _ping(server.url, "/ready")[0] != 200:
        time.sleep(0.1)


def _ping(url: str, path: str) -> tuple[int, float]:
    """Status, and milliseconds."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status, 1e3 * (time.perf_counter() - began)


def _measure(server: Server, case: str | None) -> str:
    process = Path(f"/proc/{server.process.pid}")
    idle = _memory(process, "VmRSS")
    (process / "clear_refs").write_text("5")  # the peak counts from now on
    took = []
    with child("-c", _CASE, case or "nothing", server.url, stdout=subprocess.DEVNULL) as running:
        while running.poll() is None:
            for path in ("/live", "/health"):
                took.append(_ping(server.url, path)[1])
            time.sleep(_EVERY)
    peak = _memory(process, "VmHWM")
    time.sleep(_REST)
    kept = _memory(process, "VmRSS")
    p95 = quantiles(took, n=20)[-1]
    return f"{idle:5.0f} {peak - idle:+5.0f} {kept - idle:+5.0f}   {median(took):6.1f} {p95:6.1f} {max(took):7.1f}"


def _memory(process: Path, field: str) -> float:
    """Megabytes, from the process's status."""
    lines = (process / "status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1000


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return str(parts.hostname), int(parts.port or 0)


def _endless(first: bytes, more: bytes, url: str) -> None:
    """Send `more` again and again on four connections, and connect again when one is closed."""

    def send(_: int) -> None:
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(_address(url), 5) as connection:
                connection.sendall(first)
                while time.monotonic() < until:
                    connection.sendall(more)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(4)))


def _at_once(
    count: int, path: str, body: Callable[[], bytes], url: str, *, again: bool = False, each: int | None = None
) -> None:
    """Send so many requests, and wait for the replies. `again`: try again while there is no place.

    `each`: requests under way at a time; None: all.
    """

    bodies = [body() for _ in range(count)]  # before, as to make them takes of these cores

    def send(content: bytes) -> None:
        connection = http.client.HTTPConnection(*_address(url), timeout=120)
        with suppress(OSError, http.client.HTTPException):
            while True:
                connection.request("POST", path, content, {"Content-Type": "application/json"})
                reply = connection.getresponse()
                reply.read()
                if not (again and reply.status == 503):
                    break
                time.sleep(_EVERY)
        connection.close()

    with ThreadPoolExecutor(each or count) as pool:
        list(pool.map(send, bodies))


def _unread(count: int, seconds: float, request: Callable[[], bytes], url: str) -> None:
    """Send `request` on so many connections, and read nothing."""
    sent = request()
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(_address(url))
            connection.sendall(sent)
        time.sleep(seconds)


def _stream() -> bytes:
    asked = {"prompt": "def main(", "max_tokens": 200, "n": 128, "temperature": 0.8, "stream": True}
    body = json.dumps(asked).encode()
    head = f"POST {_COMPLETIONS} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _prompt(text: str) -> bytes:
    return json.dumps({"prompt": text, "max_tokens": 1}).encode()


def _ids() -> bytes:
    return b'{"prompt":[' + b",".join(repeat(b"1000", _MEGABYTES // 5)) + b"]}"


def _biases() -> bytes:
    return json.dumps({"prompt": "x", "logit_bias": {str(token): 1.5 for token in range(MOST_BIASES)}}).encode()


def _keys() -> bytes:
    return json.dumps({f"key{number}": 1 for number in range(25_000)}).encode()


_numbers = count()


def _schema() -> bytes:
    schema = {"type": "array", "prefixItems": [_wide_object() for _ in range(4)]}
    return json.dumps({"prompt": "def main(", "max_tokens": 8, "json_schema": schema}).encode()


def _wide_object() -> dict[str, object]:
    names = (f"property {number} of {next(_numbers)}" for number in range(750))
    return {"type": "object", "properties": {name: {"type": "string", "pattern": f"^.*{name}$"} for name in names}}


def _long() -> bytes:
    return json.dumps({"prompt": "def main(", "max_tokens": 8, "user": "x" * len(_schema())}).encode()


def _expression() -> bytes:
    regex = rf"(.*a){{25}}(\p{{L}}|\p{{N}}){{1,{100 + next(_numbers)}}}(?s:.)*(a|b)(?s:.){{200}}"
    return json.dumps({"prompt": "def main(", "max_tokens": 40, "temperature": 0.8, "regex": regex}).encode()


def _choices() -> bytes:
    return json.dumps({"prompt": "def main(", "max_tokens": 8, "n": 128, "temperature": 0.8}).encode()


_TEXT = "the quick, brown fox "
_COMPLETIONS = "/v1/completions"
CASES: dict[str, Callable[[str], None]] = {
    "heads": partial(_endless, _GET, b"a:\r\n" * 16384),
    "header line": partial(_endless, _GET + b"a: ", b"a" * 65536),
    "ahead": partial(_endless, b"", (_GET + b"\r\n") * 1024),
    "ids": partial(_at_once, 60, _COMPLETIONS, _ids),
    "biases": partial(_at_once, 20, _COMPLETIONS, _biases),
    "keys": partial(_at_once, 20, _COMPLETIONS, _keys),
    "texts": partial(_at_once, 20, _COMPLETIONS, lambda: _prompt(_TEXT * (_MEGABYTES // len(_TEXT) - 10))),
    "longest prompts": partial(_at_once, 100, _COMPLETIONS, lambda: _prompt(_TEXT * 1500)),
    "schemas": partial(_at_once, 40, _COMPLETIONS, _schema, each=4),
    "schemas at once": partial(_at_once, 40, _COMPLETIONS, _schema),
    "bodies at once": partial(_at_once, 40, _COMPLETIONS, _long),
    "expressions": partial(_at_once, 100, _COMPLETIONS, _expression, each=4),
    "choices": partial(_at_once, 8, _COMPLETIONS, _choices, again=True),
    "unread streams": partial(_unread, 8, 4 * _SECONDS, _stream),
    "slow readers": partial(
        _unread, 100, _SECONDS, lambda: b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 10
    ),
    "nothing": lambda _: time.sleep(_SECONDS),
}


if __name__ == "__main__":
    main()
