"""Child processes that answer: within their limits, and never left behind."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from specpair.child_processes.worker import MEMORY, OUT_OF_MEMORY, Unanswered, Worker, written
from tests.paths import ROOT
from tests.specpair.child_processes.left_behind import gone, needs_proc

CHILD = "tests.specpair.child_processes.answers"
HANGS = f"""
import threading
from specpair.child_processes.worker import Worker
worker = Worker({CHILD!r})
print(worker.ask({{}}, 30)["pid"], flush=True)
threading.Thread(target=worker.ask, args=({{"hang": ""}}, 60), daemon=True).start()
input()
"""


def test_one_child_answers_all_requests() -> None:
    greeted = list[bytes]()

    def greeting() -> bytes:
        greeted.append(written({"hello": "child"}))
        return greeted[-1]

    worker = Worker(CHILD, greeting)
    first, second = worker.ask({"a": 'ü\n"'}, 30), worker.ask({"b": [1]}, 30)
    assert (first["a"], second["b"], first["pid"]) == ('ü\n"', [1], second["pid"])
    assert len(greeted) == 1
    worker.end()
    assert worker.ask({}, 30)["pid"] != first["pid"] and len(greeted) == 2


@pytest.mark.parametrize(
    ("request_", "reason", "late"),
    [
        ({"hang": ""}, "takes longer than 0.5 s", True),
        ({"exit": 3}, "its process ended with status 3", False),
        ({"exit": OUT_OF_MEMORY}, "takes more than 512 MB of memory", False),
        ({"bytes": MEMORY + 2**20}, "takes more than 512 MB of memory", False),
    ],
)
def test_what_has_no_answer_is_told_and_the_next_request_has_one(
    request_: dict[str, Any], reason: str, late: bool
) -> None:
    worker = Worker(CHILD)
    worker.ask({}, 30)
    with pytest.raises(Unanswered, match=reason) as caught:
        worker.ask(request_, 0.5 if late else 30)
    assert caught.value.late == late
    assert worker.ask({"a": 1}, 30)["a"] == 1


def test_to_kill_waits_for_nothing(tmp_path: Path) -> None:
    worker, failures, begun = Worker(CHILD), list[str](), tmp_path / "begun"

    def ask() -> None:
        try:
            worker.ask({"hang": str(begun)}, 50)
        except Unanswered as error:
            failures.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    while not begun.exists():
        asking.join(0.01)
        assert asking.is_alive()
    worker.kill()
    asking.join(30)
    assert not asking.is_alive()
    assert failures == ["its process was ended by SIGKILL"]


@needs_proc
def test_a_child_ends_with_its_parent_also_during_an_answer() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HANGS], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    assert gone(child)


def test_the_memory_of_the_parent_counts_for_none_of_the_child() -> None:
    large = f"""
from specpair.child_processes.worker import MEMORY
from specpair.child_processes.worker import Worker
model = bytearray(b"x") * (MEMORY + 2**24)
print(Worker({CHILD!r}).ask({{"sleep": 0.2}}, 30)["pid"])
"""
    done = subprocess.run([sys.executable, "-c", large], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip().isdigit(), done.stderr
