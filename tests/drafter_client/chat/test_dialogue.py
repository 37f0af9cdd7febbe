"""What is said in a chat: messages and their files, commands, and how they are typed."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from drafter_client.chat.dialogue import BadChat, Dialogue
from drafter_client.chat.turn_input import (
    COMMANDS,
    Called,
    EditedInput,
    UnknownCommand,
    completions,
    help_lines,
    history_in,
    read,
)

TALK = Dialogue().asked("a?").answered("A").asked("b?").answered("B")


def _contents(dialogue: Dialogue) -> list[str]:
    return [each["content"] for each in dialogue.messages()]


def test_an_unanswered_question_is_replaced_by_the_next() -> None:
    asked = TALK.asked("c?")
    assert asked.unanswered and not TALK.unanswered
    assert _contents(asked.asked("d?")) == ["a?", "A", "b?", "B", "d?"]
    assert _contents(TALK) == ["a?", "A", "b?", "B"], "values do not change"


def test_the_last_question_is_asked_again_without_its_answer() -> None:
    assert _contents(TALK.asked_again()) == ["a?", "A", "b?"] == _contents(TALK.asked_again().asked_again())
    with pytest.raises(BadChat, match="no question was asked yet"):
        Dialogue("be brief").asked_again()


@given(said=st.lists(st.text(), max_size=5), system=st.none() | st.text())
def test_what_is_saved_is_loaded(tmp_path_factory: pytest.TempPathFactory, said: list[str], system: str | None) -> None:
    dialogue = Dialogue(system)
    for at, text in enumerate(said):
        dialogue = dialogue.answered(text) if at % 2 else dialogue.asked(text)
    path = tmp_path_factory.getbasetemp() / "talk.json"
    dialogue.save(path)
    assert Dialogue.load(path) == dialogue
    path.write_text(json.dumps(dialogue.messages()))  # the list alone
    assert Dialogue.load(path) == dialogue


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"x": []}', "holds no messages"),
        ("5", "holds no messages"),
        ('["a"]', "message 1 is no object"),
        ('[{"role": "tool", "content": "x"}]', 'message 1: the role must be system, user or assistant, got "tool"'),
        ('[{"role": "user", "content": ["x"]}]', "message 1: the content must be text"),
        ('[{"role": "user", "content": "\\ud800"}]', "message 1: the content must be text"),
        ('[{"role": "assistant", "content": "x"}]', "message 1 has the role assistant, expected user"),
        (
            '[{"role": "developer", "content": ""}, {"role": "user", "content": ""}, {"role": "user", "content": ""}]',
            "message 3 has the role user, expected assistant",
        ),
        (b"\xff", "is not UTF-8 text"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong(tmp_path: Path, content: Any, error: str) -> None:
    path = tmp_path / "talk.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadChat) as raised:
        Dialogue.load(path)
    assert error in str(raised.value) and str(path) in str(raised.value)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "talk.json"
    with pytest.raises(BadChat, match=r"talk\.json cannot be written: No such file"):
        TALK.save(path)


def test_what_is_said_loses_the_space_around_it_and_nothing_else() -> None:
    assert read("  why is\n\nthat so? ") == "why is\n\nthat so?"
    assert read(" /etc is what?") == "/etc is what?" and read("a /quit") == "a /quit" and read("  ") == ""


def test_commands_are_read_with_what_stands_behind_them() -> None:
    assert read("/retry ") == Called(COMMANDS["retry"], "")
    assert read("/save  my notes.json ") == Called(COMMANDS["save"], "my notes.json")
    assert read("/system be\nbrief") == Called(COMMANDS["system"], "be\nbrief")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("/staats", "no command /staats (for text, put a space before it); did you mean /stats?"),
        ("/", "no command / (for text, put a space before it); choose one of /stats, /save, /load, "),
        ("/\x1b[2J", r"no command /\x1b[2J"),
        ("/save", "/save FILE: the FILE is missing"),
        ("/quit now", "/quit takes no argument, got 'now'"),
    ],
)
def test_a_bad_command_says_what_there_is(line: str, error: str) -> None:
    with pytest.raises(UnknownCommand) as raised:
        read(line)
    assert error in str(raised.value) and "\x1b" not in str(raised.value)


def test_names_and_modes_are_completed() -> None:
    modes = ["auto", "remote", "fused", "target"]
    assert completions("/s", modes) == ["/stats", "/save", "/system"]
    assert completions("/mode ", modes) == modes and completions("/mode f", modes) == ["fused"]
    assert completions("/quit ", modes) == completions("word", modes) == completions("/none x", modes) == []


def test_help_has_a_line_for_each_command_that_fits_80_columns() -> None:
    lines = help_lines()
    assert [line.split()[0] for line in lines] == ["/" + name for name in COMMANDS]
    assert max(map(len, lines)) <= 80


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as keys:
        yield keys


def _input(keys: PipeInput, history: Path | None = None) -> EditedInput:
    kept = InMemoryHistory() if history is None else history_in(history)
    return EditedInput(kept, lambda: ["auto", "target"], input=keys, output=DummyOutput())


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("one\r", "one"),
        ("one\x1b\rtwo\r", "one\ntwo"),
        ("one\\\rtwo\r", "one\ntwo"),
        ("\x1b[200~one\ntwo\x1b[201~\r", "one\ntwo"),
        ("one\x03two\r", "two"),
        ("\x03", None),
        ("\x04", None),
    ],
    ids=["enter", "alt-enter", "backslash", "paste", "ctrl-c", "ctrl-c at an empty prompt", "ctrl-d"],
)
def test_keys(keys: PipeInput, typed: str, read: str | None) -> None:
    keys.send_text(typed)
    assert _input(keys).read() == read


def test_the_history_is_kept_between_runs_for_the_user_alone(keys: PipeInput, tmp_path: Path) -> None:
    file = tmp_path / "new" / "chat_history"
    keys.send_text("one\x1b\rtwo\r")
    _input(keys, file).read()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = _input(keys, file)
    keys.send_text("\x1b[A\r")  # the arrow up
    assert again.read() == "one\ntwo"
