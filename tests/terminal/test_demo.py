"""The demo in a terminal."""

import sys
from collections.abc import Iterator

import pytest

from tests.terminal.pseudo import Terminal, check, python, terminal

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="pseudo-terminals and /proc as on Linux"),
    pytest.mark.slow,
]
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
