"""Ctrl-C while a command's modules are imported: it ends at once, by the signal, and says nothing."""

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import drafter_client
from command_line import start
from tests.paths import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send to one process")
ENTRIES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
# The interpreter runs this before the program: SIGINT comes when the module is looked for, wherever that is.
INTERRUPTED_AT = dedent("""
    import os, signal, sys

    class Keyboard:
        def find_spec(self, name, path=None, target=None):
            if name == os.environ["INTERRUPTED_AT"]:
                os.kill(os.getpid(), signal.SIGINT)

    sys.meta_path.insert(0, Keyboard())
""")


def _installed(name: str) -> list[str]:
    """As the script that an installation makes of an entry point."""
    module, _, function = ENTRIES[name].partition(":")
    return ["-c", f"import sys; from {module} import {function}; sys.exit({function}())"]


DRAFTER = ("numpy", "drafter_client.cli.arguments")
VERIFIER = ("pydantic", "verifier_server.service")
DEMO = ("benchmarks.harness", "numpy")
COMMANDS = [
    *((["-m", "drafter_client"], module) for module in ("drafter_client.cli.program", *DRAFTER)),
    *((_installed("drafter"), module) for module in DRAFTER),
    *((["-m", "verifier_server"], module) for module in ("verifier_server.program", *VERIFIER)),
    *((_installed("verifier"), module) for module in VERIFIER),
    *((["-m", "examples.demo"], module) for module in ("examples.demo_program", *DEMO)),
    *((["-m", "benchmarks.child", "0", "-m", "drafter_client"], module) for module in ("drafter_client", *DRAFTER)),
]


@pytest.mark.parametrize(("command", "module"), COMMANDS, ids=[f"{' '.join(each[:2])}-{at}" for each, at in COMMANDS])
def test_ctrl_c_while_modules_are_imported_ends_it_without_a_word(
    tmp_path: Path, command: list[str], module: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_AT)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    nothing_comes, held = os.pipe()
    with os.fdopen(nothing_comes), os.fdopen(held, "w"):
        ran = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "INTERRUPTED_AT": module},
            stdin=nothing_comes,
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
def test_what_the_handler_was_comes_back_and_an_ignored_signal_stays_ignored() -> None:
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


def test_all_that_a_package_offers_is_found_when_it_is_asked_for() -> None:
    assert sorted(drafter_client._HOMES) == sorted(drafter_client.__all__)
    for name in drafter_client.__all__:
        assert getattr(drafter_client, name) is not None
    with pytest.raises(AttributeError, match="module 'drafter_client' has no attribute 'Nothing'"):
        drafter_client.Nothing  # type: ignore[attr-defined]  # noqa: B018
