"""The services that are measured: a paced verifier, and `drafter serve`."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from lab.benchmarks.harness.texts import connected
from lab.simulator.paced.engine import TARGET_25
from specpair.child_processes.children import child
from specpair.child_processes.serving import Server, verifier


@contextmanager
def paced(slots: int) -> Iterator[Server]:
    """A verifier of the shipped target, whose passes take as long as those of a target of 25 ms a step."""
    settings = {"slots": slots, "threads": 1, "context": 1024, "insecure": "yes"}
    with verifier("lab.simulator.paced.engine:app", PACED_TARGET=TARGET_25, **settings) as server:
        with connected(server.url):
            pass  # it has loaded its model
        yield server


@contextmanager
def drafter_serve(url: str, texts: int, queue: int, **others: object) -> Iterator[Server]:
    """`drafter serve` in front of a verifier, with the draft model that ships on one thread.

    `others`: further flags by their names; True: without a value.
    """
    flags = {"verifier": url, "port": 0, "texts": texts, "queue": queue, "threads": 1, "branches": 2, **others}
    named = {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
    arguments = [name if value is True else f"{name}={value}" for name, value in named.items()]
    with child("-m", "drafter_client", "serve", *arguments, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        line = ""
        for line in process.stderr:
            if (found := re.search(r"(http://\S+)/v1", line)) is not None:
                yield Server(process, found[1])
                return
        raise RuntimeError(f"drafter serve ended before it served: {line.strip()}")
