"""Manual pages: what they hold, and what the formatters say of them."""

import re
import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest

from drafter_client.cli.program import parsers as drafter_parsers
from specpair.command_line.manual import command
from specpair.command_line.parser import Parser
from specpair.own_commands import parsers as specpair_parsers
from verifier_server.commands.parsers import parsers as verifier_parsers

ALL = {**drafter_parsers(), **verifier_parsers(), **specpair_parsers()}
DAY = date(2026, 1, 31)
PAGES = dict(command.pages(ALL, DAY))


def _parser() -> Parser:
    made = Parser("tool", usage="[FLAGS]", description="Do it. 'x' is \\e.", examples=("tool -x 'a'",))
    made.add_argument("-x", metavar="N", default=1, help=".5 of it, 50 %% (default: %(default)s)")
    return made


def test_a_page_has_its_usage_flags_and_examples_and_is_the_same_each_time() -> None:
    [(name, text)] = command.pages({"tool": _parser}, DAY)
    assert name == "tool.1" and '1 "2026-01-31"' in text.splitlines()[0]
    assert "tool \\- do it\n" in text and "\n.B tool\n[FLAGS]\n" in text
    assert "\\fB\\-x\\fR \\fIN\\fR\n\\&.5 of it, 50 % (default: 1)\n" in text
    assert "\\(aqx\\(aq is \\ee." in text and "\n.EX\ntool \\-x \\(aqa\\(aq\n.EE\n" in text
    assert [*command.pages({"tool": _parser}, DAY)] == [(name, text)]


def test_each_command_has_a_page_with_all_its_flags() -> None:
    assert [*PAGES] == [f"{each.replace(' ', '-')}.1" for each in ALL]
    for text, make in zip(PAGES.values(), ALL.values(), strict=True):
        flags = {flag for action in make().actions() if action.help != "==SUPPRESS==" for flag in action.option_strings}
        assert flags <= set(re.findall(r"\\fB(-[^\\ ]*)\\fR", text.replace("\\-", "-")))


def test_pages_are_written_with_the_day_of_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1769817600")
    assert command.run("tool", [str(tmp_path / "man1")], lambda: {"tool": _parser}) == 0
    assert [*command.pages({"tool": _parser}, DAY)] == [
        (path.name, path.read_text()) for path in (tmp_path / "man1").iterdir()
    ]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert command.run("tool", [str(tmp_path / "file")], lambda: {"tool": _parser}) == 1
    assert capsys.readouterr().err == f"tool: {tmp_path / 'file'} cannot be written: File exists\n"


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_mandoc_warns_of_nothing(tmp_path: Path) -> None:
    for name, text in PAGES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    ran = subprocess.run(["mandoc", "-Tlint", "-Wwarning", *PAGES], cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "")
