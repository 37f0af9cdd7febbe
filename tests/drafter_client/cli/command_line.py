"""Runs the command line in this process: flags in; status, standard output and standard error out."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from drafter_client.cli.program import main
from specpair.http_service.observability import logs

TOY = ["--backend", "scripted", "--draft-model", "1"]


@dataclass(frozen=True)
class Ran:
    """Exit status and output of a program."""

    status: int
    out: str
    err: str


Command = Callable[..., Ran]


class Terminal(io.StringIO):
    """Standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


def runner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """A function that runs `drafter` with flags and, if given, piped standard input."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(logs, "configure", lambda _: None)  # it changes the handlers of this process

    def run(*flags: str, stdin: bytes | None = None) -> Ran:
        piped = Terminal() if stdin is None else io.TextIOWrapper(io.BytesIO(stdin))
        monkeypatch.setattr(sys, "stdin", piped)
        try:
            status = main(list(flags))
        except SystemExit as end:  # argparse
            status = end.code if isinstance(end.code, int) else 1
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run
