"""A text on a terminal begins rows with whole words; what stands below it is erased without a trace."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from rich.console import Console

from drafter_client.display.progress import loading, say_outage, writing
from drafter_client.display.readout import Readout, TextFlow
from drafter_client.display.status_line import StatusLine, draw, may_share_rows, say
from drafter_client.generation.generation import Token, Tokens
from drafter_client.http.outages import Outage
from specpair.speculation.acceptance.token_sources import TokenSource
from tests.drafter_client.support import Ticks
from tests.terminal.screen import Screen

WIDTH = 20
characters = some.sampled_from("ab \n漢é")
pieces = some.lists(some.text(characters, max_size=WIDTH + 3), max_size=30)


@pytest.fixture(autouse=True)
def _none_is_left_behind() -> Iterator[None]:
    yield
    StatusLine(_console(), below_text=False).end()


def _console(width: int = WIDTH, **more: Any) -> Console:
    environment = {"TERM": "xterm-256color", "COLUMNS": str(width), "LINES": "24"}
    return Console(file=io.StringIO(), force_terminal=True, width=width, _environ=environment, **more)


def _written(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    text = file.getvalue()
    file.seek(0)
    file.truncate()
    return text


@given(pieces, some.integers(1, 6))
@example(["a" * 19, "漢", "漢"], 1)  # a wide character for which one column is left
def test_the_text_on_the_screen_is_unchanged_by_the_line(text: list[str], rows: int) -> None:
    console, screen, plain = _console(), Screen(WIDTH, rows + 1), Screen(WIDTH, rows + 1)
    line = StatusLine(console, below_text=True, clock=Ticks())
    line.begin()
    for piece in text:
        line.wipe()
        console.file.write(piece)
        line.wrote(1, piece)
        screen.feed(_written(console))
        plain.feed(piece)
        shown = [row for row in screen.lines if not row.startswith("drafter: ")]
        assert "".join(shown) == "".join(plain.lines)
    line.wipe()
    console.file.write("|")
    screen.feed(_written(console))
    plain.feed("|")
    assert screen.lines == plain.lines


def test_other_lines_get_rows_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    console, screen = _console(60), Screen(60, 4)
    monkeypatch.setattr("sys.stderr", console.file)
    line = StatusLine(console, below_text=True, clock=Ticks())
    line.begin()
    for piece in ("one\n", "two"):
        line.wipe()
        console.file.write(piece)
        line.wrote(1, piece)
    say("drafter: waiting for the verifier")
    say("drafter: still waiting")
    line.wipe()
    console.file.write(" three")
    line.wrote(1, " three")
    line.end()
    screen.feed(_written(console))
    assert screen.lines == ["one", "two", "drafter: waiting for the verifier", "drafter: still waiting", " three"]
    say("drafter: on its own")
    assert _written(console) == "drafter: on its own\n"


@pytest.mark.parametrize(
    "console",
    [
        Console(file=io.StringIO(), force_terminal=False),
        Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"}),
    ],
    ids=["pipe", "dumb"],
)
def test_nothing_is_written_where_nothing_can_be_erased(console: Console) -> None:
    line = StatusLine(console, below_text=False)
    line.begin()
    line.wrote(1, "x")
    line.busy("busy")
    line.wipe()
    assert _written(console) == ""


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _flowed(parts: list[str]) -> list[str]:
    """The screen after the parts of a text, each in another style."""
    console = Console(file=_Terminal(), force_terminal=True, width=12, _environ={"TERM": "xterm"})
    flow = TextFlow(console)
    for number, part in enumerate(parts):
        flow.write(part, ("red", "")[number % 2])
    screen = Screen(12)
    screen.feed(_written(console))
    return screen.lines


@given(some.lists(some.text(characters, max_size=15), max_size=12))
def test_no_character_is_lost_or_moved(parts: list[str]) -> None:
    assert "".join("".join(_flowed(parts)).split()) == "".join("".join(parts).split())


def test_a_word_that_is_longer_than_a_row_begins_one_and_is_split() -> None:
    assert _flowed(["one ", "abcdefgh", "ijklmnop"]) == ["one", "abcdefghijkl", "mnop"]
    assert [line.count("漢") for line in _flowed(["漢" * 8])] == [6, 2]


def test_loading_prints_lines_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    moments = iter([0.0, 0.5, 1.5, 1.6, 1.7, 3.0, 3.1])
    with loading("a.gguf", lambda: next(moments)) as report:
        for fraction in (0.1, 0.25, 0.3, 0.8, 1.0):
            report(fraction)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "drafter: loading a.gguf … 25%\ndrafter: loading a.gguf … 80%\n"


def test_writing_prints_lines_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    moments = iter([0.0, 1.0, 11.0, 11.0, 20.0, 21.0, 21.0])
    with writing(8, 3, lambda: next(moments)) as progress:
        progress.wrote(5)
        progress.finished()
        for tokens in (2, 3, 4):
            progress.wrote(tokens)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "drafter: 4 of 8 prompts, 7 tokens\ndrafter: 4 of 8 prompts, 14 tokens\n"


def test_the_bar_steps_aside_for_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with writing(8, 3) as progress:
        progress.wrote(7)
        progress.finished()
        with progress.aside():
            capsys.readouterr()
            print("text")
        assert capsys.readouterr().out == "text\n"
    said = capsys.readouterr()
    assert said.out == "" and "4/8" in said.err and "7 tokens" in said.err


def test_lines_said_meanwhile_are_above_the_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    screen = Screen(80)
    with writing(8, 3) as progress:
        progress.wrote(7)
        for seconds in (0, 10, 20):
            assert not draw("waiting")
            say(f"drafter: waiting … {seconds} s")
        screen.feed(capsys.readouterr().err)
        assert screen.lines[:3] == [f"drafter: waiting … {seconds} s" for seconds in (0, 10, 20)]
        assert len(screen.lines) == 4 and "3/8" in screen.lines[3]
    screen.feed(capsys.readouterr().err)
    assert len(screen.lines) == 3
    say("drafter: on its own")
    assert capsys.readouterr().err == "drafter: on its own\n"


LINES = [
    "drafter: waiting for the verifier (nothing answers) … 0 s of 300 (--patience)",
    "drafter: the verifier answers again after 20 s",
]
MARK = b"\0end"
Ends = tuple[int, int]  # file descriptors to read from, and to write to


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Ends, Ends], None]]:
    """Makes two files standard output and standard error."""
    if sys.platform != "linux":
        pytest.skip("pseudo-terminals as on Linux")
    monkeypatch.setenv("TERM", "dumb")
    with ExitStack() as stack:

        def make(out: Ends, err: Ends) -> None:
            for end in {*out, *err}:
                stack.callback(os.close, end)
            for name, (_, end) in (("stdout", out), ("stderr", err)):
                monkeypatch.setattr(sys, name, stack.enter_context(open(os.dup(end), "w", encoding="utf-8")))

        yield make


def _with_an_outage(*pieces: str) -> None:
    """Show a text with an outage after each piece but the last: of its begin and its end there is a line each."""
    readout = Readout(as_json=False, stream=True)
    readout.begin(of_two=False)
    for at, piece in enumerate(pieces):
        if at:
            say = say_outage()
            for seconds in (0.0, 10.0):
                say(Outage(seconds, 300.0, "nothing answers"))
            say(Outage(20.0, 300.0, "nothing answers", over=True))
        token = Token(1, piece, TokenSource.TARGET_DECODED)
        readout.add(Tokens(at, [token]))
    readout.close()


def _read(ends: Ends) -> str:
    """All that was written. A terminal delivers it in parts; MARK, written last, tells its end."""
    end, written = ends
    os.write(written, MARK)
    output = b""
    while not output.endswith(MARK):
        output += os.read(end, 65536)
    return output.removesuffix(MARK).decode().replace("\r\n", "\n")


def test_text_that_is_piped_may_be_on_the_screen_of_the_notice(made: Callable[[Ends, Ends], None]) -> None:
    """As in `drafter … | tee file`."""
    pipe, screen = os.pipe(), os.openpty()
    made(pipe, screen)
    _with_an_outage("one\n", "two", "\t", " three")
    assert _read(pipe) == "one\ntwo\t three"
    wait = "\n".join(LINES) + "\n"
    assert _read(screen) == f"{wait}\n{wait}\n{wait}"


def test_a_terminal_without_cursor_control_gets_rows_of_their_own(made: Callable[[Ends, Ends], None]) -> None:
    screen = os.openpty()
    made(screen, screen)
    _with_an_outage("one\n", "two", " three")
    assert _read(screen).splitlines() == ["one", *LINES, "two", *LINES, " three"]


def test_text_and_notice_in_one_pipe_get_rows_of_their_own(made: Callable[[Ends, Ends], None]) -> None:
    """As in `drafter … 2>&1 | tee file`."""
    pipe = os.pipe()
    made(pipe, pipe)
    _with_an_outage("two", " three")
    assert _read(pipe).splitlines() == ["two", *LINES, " three"]


def test_notices_in_a_file_of_their_own_have_no_empty_lines(made: Callable[[Ends, Ends], None]) -> None:
    """As in `drafter … 2> file`."""
    screen, pipe = os.openpty(), os.pipe()
    made(screen, pipe)
    _with_an_outage("two", " three")
    assert (_read(screen), _read(pipe).splitlines()) == ("two three", LINES)


def test_streams_of_this_process_share_no_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert not may_share_rows(sys.stdout, sys.stderr)
