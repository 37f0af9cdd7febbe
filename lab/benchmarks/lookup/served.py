"""The verifier that looked-up draft tokens are measured with, over a link."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from drafter_client.http.client import VerifierClient
from lab.benchmarks.harness.models import CONTEXT
from lab.benchmarks.harness.relay import relay
from lab.benchmarks.harness.texts import connected
from lab.benchmarks.lookup.tasks import Task
from lab.simulator.paced.engine import TARGET_25
from specpair.child_processes.serving import verifier


@contextmanager
def reciting(todo: Sequence[Task], folder: Path, rtt: float) -> Iterator[VerifierClient]:
    """A client of a verifier whose target writes the answers of these tasks, 25 ms a pass.

    `folder`: where a file is put for it.
    `rtt`: of the link, in milliseconds.
    """
    texts = folder / "texts.json"
    texts.write_text(json.dumps([[*task.prompt, *task.answer] for task in todo]), encoding="utf-8")
    settings = {"RECITED": texts, "PACED_TARGET": TARGET_25, "context": CONTEXT, "slots": 2}
    with (
        verifier("lab.benchmarks.lookup.reciting:application()", **settings) as server,
        relay(server.url, rtt) as url,
        connected(url) as client,
    ):
        yield client
