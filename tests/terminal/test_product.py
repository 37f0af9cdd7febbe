"""The commands in a terminal, as a user meets them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.drafter_client.support import Verifier, running
from tests.paths import ROOT
from tests.terminal.pseudo import Terminal, check, python, terminal
from verifier_server.app import UVICORN_OPTIONS
from verifier_server.settings import Settings

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="pseudo-terminals and /proc as on Linux"),
    pytest.mark.slow,
]
DRAFTER = python("-m", "drafter_client")
TEXT = ["--prompt", "def main():", "--max-tokens", "16", "--temperature", "0.8", "--seed", "7"]
SERVERS = {
    "uvicorn": python("-m", "uvicorn", "verifier_server.app:app", "--port", "0"),
    "flags": python("-m", "verifier_server", "--port", "0"),
}


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    """A verifier with the shipped target and a draft model."""
    draft = ROOT / "models" / "stdlib-draft-q8_0.gguf"
    with running(Settings(slots=4, context=512, threads=1, draft_model=draft, draft_threads=1)) as started:
        yield started


@contextmanager
def shown(*arguments: str, columns: int = 100, **variables: str) -> Iterator[Terminal]:
    """Run a drafter command that must succeed. Yields the terminal with its output."""
    with terminal([*DRAFTER, *arguments], columns, **variables) as screen:
        status = screen.wait()
        check(screen, columns)
        assert status == 0, screen.text
        yield screen


def _panel(screen: Terminal) -> list[str]:
    return [line for line in screen.lines if line.startswith(("│", "╭", "╰"))]


@pytest.mark.parametrize("mode", ["remote", "fused", "target", "auto"])
def test_drafter_shows_the_text_and_its_panel(verifier: Verifier, mode: str) -> None:
    arguments = ["--verifier", verifier.url, "--mode", mode, *TEXT, *["--baseline"] * (mode != "target")]
    with shown(*arguments, columns=80) as screen:
        assert screen.coloured
        panel = _panel(screen)
        assert panel[0].startswith("╭") and panel[-1].startswith("╰") and len({len(line) for line in panel}) == 1
        words = " ".join(screen.text.split())
        assert "stdlib-target-q8_0" in panel[0] and "16 tokens" in words
        assert ("x the target" in words) == (mode != "target")
        assert screen.text.partition("╭")[0].strip()  # the text


def test_report_shows_the_panel_and_acceptance_by_depth(verifier: Verifier, tmp_path: Path) -> None:
    runs = str(tmp_path / "runs")
    with shown("--verifier", verifier.url, *TEXT, "--lockstep", "--draft-n", "3", "--profile", runs):
        pass
    with shown("report", runs, columns=80) as screen:
        assert screen.coloured
        assert "acceptance by depth" in screen.text and "what the text waited for" in screen.text


@pytest.mark.parametrize("command", SERVERS.values(), ids=SERVERS)
def test_verifier_runs_until_ctrl_c(command: list[str]) -> None:
    """A drafter in a second terminal generates a text with it."""
    # With uvicorn's options it does not start itself anew: a forked process has no command line of its own.
    options = {**UVICORN_OPTIONS, "VERIFIER_CONTEXT": "512", "VERIFIER_THREADS": "1", "VERIFIER_SLOTS": "2"}
    with terminal(command, 100, **options) as server:
        url = server.wait_for(r"running on (http://127\.0\.0\.1:\d+)").group(1)
        with shown("--verifier", url, *TEXT) as screen:
            assert _panel(screen)
        server.type("\x03")
        assert server.wait() in (0, 130)
        assert server.coloured and "Traceback" not in server.text
        server.wait_until_alone()


def test_serve_runs_until_ctrl_c(verifier: Verifier) -> None:
    """It prints its address, and a request there gets a text."""
    arguments = ["--port", "0", "--threads", "1", "--serve-key", "sesame", "--verifier", verifier.url]
    with terminal([*DRAFTER, "serve", *arguments]) as server:
        url = server.wait_for(r"stdlib-draft-q8_0 drafts: (http://127\.0\.0\.1:\d+)/v1 ").group(1)
        body = {"prompt": "def main(", "max_tokens": 6, "temperature": 0.8, "seed": 7}
        with httpx.Client(headers={"Authorization": "Bearer sesame"}, trust_env=False, timeout=60) as client:
            reply = client.post(f"{url}/v1/completions", json=body)
        assert reply.status_code == 200 and reply.json()["usage"]["completion_tokens"] == 6
        server.type("\x03")
        assert server.wait() == 0
        check(server, 100)
        server.wait_until_alone()


COLUMNS = 100
DEMO = python("-m", "examples.demo", "--step-ms", "2", "--max-tokens", "16")


def _demo(*more: str) -> Iterator[Terminal]:
    with terminal([*DEMO, *more], COLUMNS) as screen:
        yield screen


@pytest.fixture
def demo() -> Iterator[Terminal]:
    yield from _demo()


@pytest.fixture
def long_demo() -> Iterator[Terminal]:
    yield from _demo("--max-tokens", "900")


def test_demo_shows_a_text_and_its_statistics(demo: Terminal) -> None:
    status = demo.wait()
    check(demo, COLUMNS)
    assert status == 0, demo.text
    assert demo.coloured
    words = " ".join(demo.text.split())
    assert words.index("demo: making the target") < words.index("demo: the drafter is the same model")
    assert "stdlib-target-q4_0 drafts for padded-2ms" in words and " 16 tokens " in words
    assert "x the target" in words
    demo.wait_until_alone()


def test_repeated_ctrl_c_leaves_no_process(long_demo: Terminal) -> None:
    long_demo.wait_for(r"target-decoded\s+(\S+\s+){3}")
    for _ in range(3):
        long_demo.type("\x03")
    assert long_demo.wait() == 130, long_demo.text
    long_demo.wait_until_alone()


def test_ctrl_c_during_the_calibration_prints_no_traceback(demo: Terminal) -> None:
    demo.wait_for("making the target")
    demo.type("\x03")
    assert demo.wait() == 130, demo.text
    assert "Traceback" not in demo.text and "interrupted" in demo.text
    demo.wait_until_alone()
