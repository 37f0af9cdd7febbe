"""Lines about an outage in the middle of a text: rows of their own on the screen, and no part of standard output."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from drafter_client.display.panel_rows import bars, columns, couples, lines
from drafter_client.display.progress import say_outage
from drafter_client.display.readout import Readout
from drafter_client.display.status_line import may_share_rows
from drafter_client.generation.generation import Token, Tokens
from drafter_client.http.outages import Outage
from drafter_client.statistics import Stats
from specpair.speculation.acceptance.token_details import TokenSource
from specpair.speculation.policy.schedule import Schedule
from tests.drafter_client.display.support import everything
from tests.paths import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="pseudo-terminals as on Linux")
LINES = [
    "drafter: waiting for the verifier (nothing answers) … 0 s of 300 (--patience)",
    "drafter: the verifier answers again after 20 s",
]
MARK = b"\0end"
Ends = tuple[int, int]  # file descriptors to read from, and to write to


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Ends, Ends], None]]:
    """Makes two files standard output and standard error."""
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


DOCS = (ROOT / "docs" / "readout.md").read_text(encoding="utf-8")
MODES = ("remote", "fused", "target", "auto", "solo")


def _first_cells(section: str) -> list[str]:
    text = DOCS.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \|(.*)\|$", text, re.MULTILINE)
    assert all(rest.rpartition("|")[2].strip() for _, rest in rows), "each has a meaning"
    return [cell.strip("`") for cell, _ in rows[1:]]


def _labels(stats: Stats) -> set[str]:
    left, right = columns(stats)
    rows = [*left, *right, *(row for couple in couples(stats) for row in couple), *lines(stats), *bars(stats)]
    return {label for label, _ in rows}


def test_exactly_the_rows_of_the_panel_are_explained() -> None:
    explained = _first_cells("The panel")
    assert len(explained) == len(set(explained))
    assert set(explained) == set.union(*(_labels(everything(mode)) for mode in MODES)) | {"ms a token"}


def test_exactly_the_keys_of_the_object_are_explained() -> None:
    assert _first_cells("The object") == list(Stats().report(""))


def test_every_token_source_and_schedule_is_explained() -> None:
    assert _first_cells("The words") == [source.value for source in TokenSource]
    assert all(f"`{schedule.value}`" in DOCS for schedule in Schedule)
