"""What parsers accept, as completions have it."""

import pytest

from drafter_client.cli.parsers import COMMANDS
from drafter_client.cli.program import parsers as drafter_parsers
from specpair.command_line.completion.accepted import Argument, Kind, Parsers, Value, accepted, brief
from specpair.own_commands import COMMANDS as OWN
from specpair.own_commands import parsers as specpair_parsers
from verifier_server.commands.parsers import parsers as verifier_parsers
from verifier_server.flags import SERVE


@pytest.mark.parametrize(
    ("parsers", "words"),
    [(drafter_parsers(), COMMANDS), (verifier_parsers(), SERVE.commands), (specpair_parsers(), OWN)],
)
def test_each_command_of_a_program_is_known_and_has_a_parser(parsers: Parsers, words: tuple[str, ...]) -> None:
    first, *others = accepted(parsers)
    assert sorted(first.commands) == sorted(words)
    assert [parsers[each.path]().prog for each in others] == [each.path for each in others]


def test_kinds_of_values() -> None:
    by_name = {name: flag for each in accepted(drafter_parsers())[:1] for flag in each.flags for name in flag.names}
    assert by_name["--mode"].value == Value(Kind.CHOICE, "mode", ("remote", "fused", "target", "auto"))
    assert by_name["--grammar"].value == Value(Kind.FILE, "FILE")
    assert by_name["--draft-model"].value == Value(Kind.FILE, "PATH")
    assert by_name["--profile"].value == Value(Kind.FOLDER, "DIR")
    assert by_name["--prompt"].value == Value(Kind.TEXT, "TEXT")
    assert by_name["--no-chat"] is by_name["--chat"] and by_name["--chat"].value is None
    assert by_name["--stop"].repeats and not by_name["--mode"].repeats


def test_arguments_in_their_order() -> None:
    [compare] = (each for each in accepted(drafter_parsers()) if each.path == "drafter bench compare")
    assert compare.arguments == (Argument(Value(Kind.FOLDER, "DIR"), False, False),) * 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Serve it. Or not.", "Serve it"),
        ("one; two", "one"),
        ("tokens (default: 3)", "tokens"),
        ("word " * 30, "word " * 13 + "word…"),
    ],
)
def test_descriptions_are_brief(text: str, shown: str) -> None:
    assert brief(text) == shown
