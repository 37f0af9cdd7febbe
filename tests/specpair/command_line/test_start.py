"""Ctrl-C during the imports of a command ends it at once, by the signal, without output."""

import errno
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from specpair.command_line import start
from tests.paths import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send to one process")
ENTRIES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
# The interpreter runs this before the program. It sends SIGINT when the named module is looked up for import.
INTERRUPTED_AT = dedent("""
    import os, signal, sys

    class Interrupter:
        def find_spec(self, name, path=None, target=None):
            if name == os.environ["INTERRUPTED_AT"]:
                os.kill(os.getpid(), signal.SIGINT)

    sys.meta_path.insert(0, Interrupter())
""")


def _installed(name: str) -> list[str]:
    """Arguments that run an entry point as its installed script does."""
    module, _, function = ENTRIES[name].partition(":")
    return ["-c", f"import sys; from {module} import {function}; sys.exit({function}())"]


# Each writes to standard output, by another way.
WRITING = [
    ["-m", "drafter_client", "--help"],
    ["-m", "drafter_client", "--version"],
    ["-m", "verifier_server", "completion", "zsh"],
    ["-m", "specpair", "--help"],
    ["-m", "specpair", "router", "--print-config"],
]
REFUSED = [["-m", "drafter_client", "--nope"], ["-m", "verifier_server", "--nope"], ["-m", "specpair", "nope"]]
DRAFTER = ("numpy", "drafter_client.cli.commands")
VERIFIER = ("pydantic", "verifier_server.service")
DEMO = ("specpair.child_processes.children", "numpy")
COMMANDS = [
    *((["-m", "drafter_client"], module) for module in ("drafter_client.cli.program", *DRAFTER)),
    *((_installed("drafter"), module) for module in DRAFTER),
    *((["-m", "verifier_server"], module) for module in ("verifier_server.program", *VERIFIER)),
    *((_installed("verifier"), module) for module in VERIFIER),
    *((["-m", "examples.demo"], module) for module in ("examples.demo_program", *DEMO)),
    *(
        (["-m", "specpair.child_processes.children", "0", "-m", "drafter_client"], module)
        for module in ("drafter_client", *DRAFTER)
    ),
]


@pytest.mark.parametrize(("command", "module"), COMMANDS, ids=[f"{' '.join(each[:2])}-{at}" for each, at in COMMANDS])
def test_ctrl_c_during_imports_ends_the_program_silently(tmp_path: Path, command: list[str], module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_AT)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    empty_input, other_end = os.pipe()
    with os.fdopen(empty_input), os.fdopen(other_end, "w"):
        ran = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "INTERRUPTED_AT": module},
            stdin=empty_input,
            capture_output=True,
            timeout=60,
        )
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGINT, b"", b"")


@pytest.fixture
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("handler")
def test_catch_interrupts_restores_the_handler_and_ignored_signals_stay() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    start.die_by_interrupts()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    start.catch_interrupts()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for handler in (signal.SIG_IGN, signal.SIG_DFL):
        signal.signal(signal.SIGINT, handler)
        start.die_by_interrupts()
        start.catch_interrupts()
        assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
@pytest.mark.parametrize("command", WRITING, ids=[" ".join(each[1:3]) for each in WRITING])
def test_an_output_that_cannot_be_written_ends_in_one_line(command: list[str]) -> None:
    """Whether it is a full disk, a pipe whose reader has left, or a stream that is closed."""
    name = {"drafter_client": "drafter", "verifier_server": "verifier"}.get(command[1], command[1])
    with open("/dev/full", "wb") as full:
        ran = _ran(command, stdout=full)
        assert ran.returncode == 1
        assert ran.stderr.decode().splitlines()[-1].endswith("the output cannot be written: No space left on device")
        assert len(ran.stderr.splitlines()) == 1 and ran.stderr.startswith(name.encode()), ran.stderr
    ended, left = os.pipe()
    os.close(ended)
    with os.fdopen(left, "wb") as pipe:
        ran = _ran(command, stdout=pipe)
        assert (ran.returncode, ran.stderr) == (start.READER_LEFT, b"")
    ran = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', sys.executable, *command], cwd=ROOT, capture_output=True)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.parametrize("command", REFUSED, ids=[" ".join(each) for each in REFUSED])
def test_errors_that_cannot_be_written_keep_their_status(command: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        ran = _ran(command, stderr=full)
    assert (ran.returncode, ran.stdout) == (2, b"")


def _ran(command: list[str], **streams: Any) -> "subprocess.CompletedProcess[bytes]":
    given: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    ran: subprocess.CompletedProcess[bytes]
    ran = subprocess.run([sys.executable, *command], cwd=ROOT, stdin=subprocess.DEVNULL, timeout=60, **given)
    return ran


@pytest.mark.usefixtures("handler")
def test_an_error_of_another_file_is_not_taken_for_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_program.py").write_text(f"def main():\n    raise OSError({errno.ENOSPC}, 'full', 'a trace')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(OSError, match="a trace"):
        start.run("failing_program", "tool")
    start.catch_interrupts()
