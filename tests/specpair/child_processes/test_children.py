"""Processes that measurements start: ready when they answer, reported when they die, and never left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from specpair.child_processes.children import child, output
from specpair.child_processes.serving import NotUp, serve
from tests.paths import ROOT
from tests.specpair.child_processes.left_behind import gone, needs_proc

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

    assert gone(int(output("-c", started("pass"))))
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


def test_a_child_runs_modules_and_code_with_their_arguments() -> None:
    assert output("-c", "import sys; print(sys.argv[1:], __name__)", "a", "b c") == "['a', 'b c'] __main__\n"
    assert output("-m", "platform", "terse") == output("-m", "platform", "terse") != ""
    with pytest.raises(subprocess.CalledProcessError):
        output("-c", "raise SystemExit(3)")


def test_ctrl_c_in_the_terminal_reaches_only_children_in_the_foreground() -> None:
    code = "import os; print(os.getpgrp())"
    with child("-c", code, stdout=subprocess.PIPE, in_foreground=True) as process:
        assert process.stdout is not None and int(process.stdout.read()) == os.getpgrp()
    assert int(output("-c", code)) != os.getpgrp()
