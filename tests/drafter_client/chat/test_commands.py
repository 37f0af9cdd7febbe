"""Lines of a chat: commands, what is said, and what is neither."""

import pytest

from drafter_client.chat.commands import COMMANDS, Called, UnknownCommand, completions, help_lines, read


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
        ("/quit now", "/quit takes nothing behind it, got 'now'"),
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
