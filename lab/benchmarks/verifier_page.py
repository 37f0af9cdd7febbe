"""What an open page costs the texts of a verifier: its time a token while nobody, one and four read `GET /events`.

Method. A verifier process serves the model that ships, whose passes are as short as passes get, so that what is told of
them is as much as it gets. `--texts` texts at once are asked for from another process's threads; readers are a process
of their own, which reads and drops what comes, as a browser elsewhere would. Rounds with 0, 1 and 4 readers take turns,
in an order that is reversed each time. Printed: the median over the rounds of the milliseconds from one token of a text
to the next, and the ratio to the round without readers beside it, in the median.

    python -m lab.benchmarks.verifier_page [--rounds 20] [--tokens 400] [--texts 2]
"""

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median

import httpx

from drafter_client import Pair
from lab.benchmarks.harness.report import Report, options_of
from specpair.child_processes.children import child
from specpair.child_processes.serving import verifier

READERS = (0, 1, 4)
_READ = """
import sys, threading, urllib.request
begun = threading.Barrier(int(sys.argv[2]) + 1)
def read():
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1]) as events:
        events.readline()
        begun.wait()
        while events.read1(65536): pass
for _ in range(int(sys.argv[2])): threading.Thread(target=read).start()
begun.wait()
print("begun", flush=True)
"""


def main() -> None:
    options = options_of(__doc__, {"rounds": 20, "tokens": 400, "texts": 2})
    report = Report("verifier_page", options)
    took: dict[int, list[float]] = {count: [] for count in READERS}
    with verifier(threads=1, slots=options.texts, context=1024) as server:
        Pair(server.url, None).close()  # which waits for the model
        for number in range(-1, options.rounds):
            for count in READERS[:: 1 if number % 2 else -1]:
                with _readers(server.url, count):
                    milliseconds = _milliseconds(server.url, options.texts, options.tokens)
                if number >= 0:  # the first round only warms up
                    took[count].append(milliseconds)
    alone = took[0]
    for count, found in took.items():
        ratio = median(each / beside for each, beside in zip(found, alone, strict=True))
        report.line(f"{count} readers: {median(found):.3f} ms a token, {ratio:.3f} times that without readers")
    report.save()


@contextmanager
def _readers(url: str, count: int) -> Iterator[None]:
    if not count:
        yield
        return
    with child("-c", _READ, f"{url}/events", str(count), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


def _milliseconds(url: str, texts: int, tokens: int) -> float:
    """Milliseconds from one token of a text to the next, with so many texts at once."""
    with httpx.Client(base_url=url, trust_env=False, timeout=120) as http, ThreadPoolExecutor(texts) as threads:

        def ask(seed: int) -> None:
            body = {"prompt": "def main(", "max_tokens": tokens, "min_tokens": tokens, "temperature": 1.0, "seed": seed}
            http.post("/generate", json=body).raise_for_status()

        began = time.perf_counter()
        list(threads.map(ask, range(texts)))
        return 1e3 * (time.perf_counter() - began) / tokens


if __name__ == "__main__":
    main()
