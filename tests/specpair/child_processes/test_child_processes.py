"""Child processes: ready when they answer, within their limits, reported when they die, and never left behind."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from specpair.child_processes.children import child
from specpair.child_processes.serving import NotUp, serve
from specpair.child_processes.worker import MEMORY, OUT_OF_MEMORY, Unanswered, Worker, written
from tests.paths import ROOT
from tests.waiting import gone, needs_proc

UP = """
import logging
async def app(scope, receive, send):
    if scope["type"] == "http":
        logging.getLogger("uvicorn.error").warning("asked for %s", scope["path"])
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})
"""
DIES = "import sys\nprint('a line before', flush=True)\nsys.exit('this cannot be')\n"
HANGS = "import signal\nprint('waiting', flush=True)\nsignal.pause()\n"


def _application(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> str:
    (folder / "served.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "served:app"


@pytest.mark.parametrize("colours", [{"FORCE_COLOR": "1", "TERM": "xterm-256color"}, {"NO_COLOR": "1"}])
def test_a_server_is_up_when_it_answers_whatever_its_log_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colours: dict[str, str]
) -> None:
    for name, value in colours.items():
        monkeypatch.setenv(name, value)
    with serve(_application(tmp_path, monkeypatch, UP)) as server:
        assert server.process.poll() is None
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))):
            pass
    assert server.process.returncode is not None


def test_a_server_that_dies_is_reported_at_once_with_its_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    with pytest.raises(NotUp) as caught, serve(_application(tmp_path, monkeypatch, DIES), patience=300.0):
        pass
    assert "ended with status 1 before it answered" in str(caught.value)
    assert "a line before\n" in str(caught.value) and "this cannot be" in str(caught.value)
    assert time.monotonic() - began < 60.0


def test_a_server_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    application = _application(tmp_path, monkeypatch, HANGS)
    with (
        pytest.raises(NotUp, match=r"did not answer within 2 s; its log ends with\nwaiting"),
        serve(application, patience=2.0),
    ):
        pass


def test_the_users_own_settings_for_a_verifier_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os, sys\nsys.exit(str({k: v for k, v in os.environ.items() if k.startswith('VERIFIER_')}))\n"
    monkeypatch.setenv("VERIFIER_MODEL", "/the/users")
    application = _application(tmp_path, monkeypatch, code)
    with pytest.raises(NotUp) as caught, serve(application, {"VERIFIER_SLOTS": "2"}):
        pass
    assert "{'VERIFIER_SLOTS': '2'}" in str(caught.value)


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("busy", ["while True: pass", "import signal; signal.pause()"])
def test_a_child_ends_with_its_parent(number: signal.Signals, busy: str) -> None:
    parent = f"""
from specpair.child_processes.children import child
with child("-c", {busy!r}) as process:
    print(process.pid, flush=True)
    process.wait()
"""
    with subprocess.Popen(
        [sys.executable, "-c", parent], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as started:
        assert started.stdout is not None
        pid = int(started.stdout.readline())
        started.send_signal(number)
        started.wait(30)
    assert gone(pid)


@needs_proc
def test_a_program_that_is_not_python_ends_with_its_parent_and_with_the_block() -> None:
    def started(rest: str) -> str:
        show = "sh", "-c", "echo $$; exec sleep 60"
        return f"""
import subprocess
from specpair.child_processes.children import child
with child("-x", *{show!r}, stdout=subprocess.PIPE) as process:
    print(process.stdout.readline(), end="", flush=True)
    {rest}
"""

    ended = subprocess.run([sys.executable, "-c", started("pass")], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    assert gone(int(ended.stdout))
    with subprocess.Popen(
        [sys.executable, "-c", started("process.wait()")], cwd=ROOT, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    assert gone(pid)


def test_a_child_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specpair.child_processes.children.PATIENCE", 0.2)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    with child("-c", deaf, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == "deaf\n"
    assert process.returncode == -signal.SIGKILL


def test_ctrl_c_in_the_terminal_reaches_only_children_in_the_foreground() -> None:
    code = "import os; print(os.getpgrp())"
    for in_foreground in (True, False):
        with child("-c", code, stdout=subprocess.PIPE, in_foreground=in_foreground) as process:
            assert process.stdout is not None
            assert (int(process.stdout.read()) == os.getpgrp()) is in_foreground


CHILD = "tests.specpair.child_processes.answers"


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


def test_a_child_that_cannot_be_started_is_told_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(CHILD)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(tmp_path / "none"))
        with pytest.raises(Unanswered, match="could not be started: No such file"):
            worker.start()
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


def test_the_memory_of_the_parent_counts_for_none_of_the_child() -> None:
    large = f"""
from specpair.child_processes.worker import MEMORY
from specpair.child_processes.worker import Worker
model = bytearray(b"x") * (MEMORY + 2**24)
print(Worker({CHILD!r}).ask({{"sleep": 0.2}}, 30)["pid"])
"""
    done = subprocess.run([sys.executable, "-c", large], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip().isdigit(), done.stderr
