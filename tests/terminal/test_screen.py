"""The drafter in a terminal: the text, then the statistics, without remains of the status line."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.drafter_client.support import Verifier, running
from tests.end_to_end.reference import CONTEXT
from tests.terminal.pseudo import python, terminal
from tests.terminal.screen import Screen
from verifier_server.settings import Settings

CONTROL = "\x1b"
PROMPT = ["--prompt", "def f(x):", "--max-tokens", "90", "--seed", "1", "--threads", "1"]
REMOTE = ["--mode", "remote"]  # in which draft tokens are certain
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pseudo-terminals and /proc as on Linux")


@pytest.fixture(scope="module")
def exact() -> Iterator[Verifier]:
    """A deterministic verifier, so that texts can be compared exactly."""
    with running(Settings(slots=3, context=CONTEXT, threads=1, deterministic=True)) as started:
        yield started


def _command(exact: Verifier, *more: str) -> list[str]:
    return python("-m", "drafter_client", "--verifier", exact.url, *PROMPT, *REMOTE, *more)


def _piped(exact: Verifier, *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(_command(exact, *more), capture_output=True, text=True, check=True)


def _target_s(exact: Verifier, temperature: float = 0.0) -> str:
    """The target's text, which is the drafter's."""
    request = {"prompt": PROMPT[1], "max_tokens": 90, "seed": 1, "temperature": temperature}
    text: str = httpx.post(f"{exact.url}/generate", json=request, trust_env=False, timeout=60).json()["text"]
    return text


def _written(exact: Verifier, columns: int, *more: str, **variables: str) -> str:
    """The bytes written to the terminal, as text."""
    with terminal(_command(exact, *more), columns, **variables) as shown:
        assert shown.wait() == 0, shown.raw
        return shown.raw


def _seen(exact: Verifier, columns: int, *more: str) -> tuple[list[str], str]:
    """The lines on the screen at the end, and all that was written."""
    written = _written(exact, columns, *more)
    screen = Screen(columns)
    screen.feed(written)
    return screen.lines, written


@pytest.mark.parametrize(
    ("columns", "more"),
    [(80, []), (100, ["--temperature", "0.8"]), (100, ["--lockstep"])],
    ids=["greedy", "drawn", "lockstep"],
)
def test_screen_shows_the_text_and_the_main_statistics(exact: Verifier, columns: int, more: list[str]) -> None:
    (legend, *lines), written = _seen(exact, columns, *more)
    assert legend == "■ accepted   ■ recovered   ■ bonus   ■ target-decoded   ■ by its head   ■ forced"
    top = next(at for at, line in enumerate(lines) if line.startswith("╭"))
    text = Screen(columns)
    text.feed(_target_s(exact, temperature=0.8 if "--temperature" in more else 0.0).expandtabs(8))
    assert "\n".join(lines[:top]).rstrip("\n") == "\n".join(text.lines)
    panel = lines[top:]
    assert re.fullmatch("╭─+ stdlib-draft-q8_0 drafts for stdlib-target-q8_0 ─+╮", panel[0])
    assert 3 <= len(panel) <= 5 and panel[-1].endswith("all: --stats ─╯")
    assert re.search(r"90 tokens   [0-9.]+ tokens/s   TTFT \d+ ms   acceptance rate", " ".join(panel))
    assert "drafter: 90 tokens, " in written, "the status line, during generation"
    assert "drafter: " not in "\n".join(lines), "the status line is erased at the end"


def test_baseline_adds_the_speed_up_and_stats_all_statistics(exact: Verifier) -> None:
    lines, written = _seen(exact, 80, "--baseline", "--no-stream")
    assert re.search(r"\d\.\d\dx the target", "\n".join(lines))
    assert "measuring the target alone" in written and "measuring" not in "\n".join(lines)
    lines, written = _seen(exact, 100, "--stats")
    assert any("mean acceptance length" in line for line in lines)
    assert any("what the text waited for" in line for line in lines)


def test_failure_before_the_first_token_leaves_one_line() -> None:
    command = python("-m", "drafter_client", "solo", "draft", "--context", "16", "--prompt", "one, two, " * 20)
    with terminal(command, 80) as shown:
        assert shown.wait() == 1
        screen = Screen(80)
        screen.feed(shown.raw)
    assert "waiting for the first token" in shown.raw
    assert len([line for line in screen.lines if line.startswith("drafter: ")]) == 1


def test_dumb_terminal_gets_no_control_codes_and_without_colours_there_is_no_legend(exact: Verifier) -> None:
    written = _written(exact, 80, TERM="dumb")
    assert CONTROL not in written and "drafts for" in written and "■" not in written
    written = _written(exact, 80, NO_COLOR="1")
    assert "drafts for" in written and "■" not in written
    colours = [code for codes in re.findall(r"\x1b\[([0-9;]*)m", written) for code in codes.split(";")]
    assert not {code for code in colours if code.isdecimal() and int(code) >= 30}


def test_piped_output_has_one_line_and_no_control_codes(exact: Verifier) -> None:
    ran = _piped(exact, "--baseline")
    assert CONTROL not in ran.stdout + ran.stderr
    assert re.fullmatch(
        r"drafter: 90 tokens, [0-9.]+ tokens/s, TTFT \d+ ms, acceptance rate (-|[0-9.]+%), ended by max_tokens, "
        r"[0-9.]+x the target\n",
        ran.stderr,
    )
    ran = _piped(exact, "--stats")
    assert CONTROL not in ran.stdout + ran.stderr and "mean acceptance length" in ran.stderr


@pytest.mark.parametrize(("where", "drawn"), [("| cat >FILE", False), (">FILE", True), (">/dev/null", True)])
def test_status_line_is_hidden_if_another_program_prints_the_text(
    exact: Verifier, tmp_path: Path, where: str, drawn: bool
) -> None:
    # That program's own output goes to a file: on the screen it would come before or after the drafter's last lines.
    file = tmp_path / "text"
    command = f"{shlex.join(_command(exact))} {where.replace('FILE', shlex.quote(str(file)))}"
    with terminal(["bash", "-o", "pipefail", "-c", command], 100) as shown:
        assert shown.wait() == 0, shown.raw
    screen = Screen(100)
    screen.feed(shown.raw)
    assert ("drafter: 90 tokens, " in shown.raw) == drawn
    if not drawn:
        assert file.read_text().strip() == _target_s(exact).strip()
        assert screen.lines[0].startswith("╭")


def test_no_legend_in_mode_target(exact: Verifier) -> None:
    command = python("-m", "drafter_client", "--verifier", exact.url, *PROMPT[:6], "--mode", "target")
    with terminal(command, 80) as shown:
        assert shown.wait() == 0, shown.raw
    assert "■" not in shown.raw
