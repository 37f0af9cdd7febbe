"""The progress of a pull on a terminal, on one that cannot go back in a line, and elsewhere."""

import io
import logging
import sys

import pytest

from models.commands.showing import Bar


class Terminal(io.StringIO):
    """A terminal that keeps what it is sent."""

    def isatty(self) -> bool:
        return True


def _pulled(monkeypatch: pytest.MonkeyPatch, screen: io.StringIO, term: str = "xterm") -> str:
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "40")
    with Bar("user/a-repository-of-models:Q8_0", "drafter") as bar:
        bar(1_000_000, 300_000_000)
        bar(2_000_000, 300_000_000)  # too soon to be told
        logging.getLogger("models.hub").warning("it is \x1b fetched again")
        bar(300_000_000, 300_000_000)
    return screen.getvalue()


def test_a_terminal_shows_one_line_that_fits_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _pulled(monkeypatch, Terminal()).split("\n")
    assert lines[1] == "drafter: it is \\x1b fetched again" and lines[-1] == ""
    assert lines[0].startswith("\r…") and "1.0 MB of 0.30 GB (0%)" in lines[0]
    assert max(len(part) for line in lines for part in line.split("\r")) == 39


@pytest.mark.parametrize(("screen", "term"), [(io.StringIO(), "xterm"), (Terminal(), "dumb")])
def test_elsewhere_nothing_is_told_of_what_takes_no_time(
    monkeypatch: pytest.MonkeyPatch, screen: io.StringIO, term: str
) -> None:
    assert _pulled(monkeypatch, screen, term) == "drafter: it is \\x1b fetched again\n"
