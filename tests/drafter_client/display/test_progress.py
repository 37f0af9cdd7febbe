"""Progress of long steps goes to standard error, and not into the text."""

import os

import pytest

from drafter_client.display.progress import loading, writing
from drafter_client.display.status_line import draw, say
from tests.drafter_client.support import Ticks
from tests.terminal.screen import Screen


def test_loading_prints_lines_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    moments = iter([0.0, 0.5, 1.5, 1.6, 1.7, 3.0, 3.1])
    with loading("a.gguf", lambda: next(moments)) as report:
        for fraction in (0.1, 0.25, 0.3, 0.8, 1.0):
            report(fraction)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "drafter: loading a.gguf … 25%\ndrafter: loading a.gguf … 80%\n"


def test_loading_has_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with loading("a.gguf", Ticks()) as report:
        report(0.5)
    said = capsys.readouterr()
    assert said.out == ""
    assert "loading a.gguf" in said.err


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


def test_there_is_no_bar_where_a_pipe_may_share_the_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    reading, writes = os.pipe()
    with open(reading), open(writes, "w") as pipe, monkeypatch.context() as patched:
        patched.setattr("sys.stdout", pipe)
        with writing(8, 3, Ticks(0.0)) as progress:
            progress.wrote(7)
    assert capsys.readouterr().err == ""
