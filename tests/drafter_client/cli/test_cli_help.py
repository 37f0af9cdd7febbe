"""The help texts: titled groups, every flag in one of them, examples that parse, no engine for tests."""

import re
import shlex

import pytest

from drafter_client.cli.commands import (
    chat_options,
    chat_parser,
    compare_options,
    compare_parser,
    drafter_options,
    drafter_parser,
    solo_options,
    solo_parser,
)
from specpair.command_line.parser import Parser
from tests.drafter_client.cli.command_line import Command

PARSERS = {
    "": drafter_parser,
    "chat": chat_parser,
    "solo": solo_parser,
    "compare": compare_parser,
}
GROUPS = {
    "": "options text many_prompts verifier drafting engine_of_the_draft_model sampling grammar acceptance output "
    "examples",
    "chat": "options text verifier drafting engine_of_the_draft_model sampling grammar acceptance output examples",
    "solo": "options model text verifier engine sampling grammar output examples",
    "compare": "options texts verifier drafting engine_of_the_draft_model sampling grammar output examples",
}
EACH = pytest.mark.parametrize("command", list(PARSERS))


def _help(drafter: Command, command: str) -> str:
    ran = drafter(*command.split(), "--help")
    assert (ran.status, ran.err) == (0, "")
    return ran.out


@EACH
@pytest.mark.parametrize("width", [80, 100])
def test_the_help_fits_and_names_every_flag(
    drafter: Command, monkeypatch: pytest.MonkeyPatch, command: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = _help(drafter, command)
    assert max(map(len, text.splitlines())) <= width
    parser: Parser = PARSERS[command]()
    known = {flag for action in parser.actions() for flag in action.option_strings if flag.startswith("--")}
    listed = re.findall(r"(?m)^  (?:-h, )?(--[a-z-]+)(?:, (--no-[a-z-]+))?", text)
    assert known <= {flag for flags in listed for flag in flags}
    titles = re.findall(r"(?m)^(\w[\w ]*):$", text)
    assert [title.replace(" ", "_") for title in titles] == GROUPS[command].split()


@EACH
def test_the_help_has_three_examples_that_parse(drafter: Command, command: str) -> None:
    examples = _help(drafter, command).partition("examples:\n")[2].splitlines()
    assert len(examples) == 3
    reads = {"chat": chat_options, "solo": solo_options, "compare": compare_options}
    for example in examples:
        program, *flags = shlex.split(example)
        assert program == "drafter"
        if command:
            assert flags.pop(0) == command
        reads.get(command, drafter_options)(flags)


@EACH
def test_the_engine_for_tests_is_hidden_and_works(drafter: Command, command: str) -> None:
    assert "scripted" not in _help(drafter, command)
    ran = drafter("solo", "--backend", "scripted", "--model", "1", "--prompt", "x", "--max-tokens", "2", "--json")
    assert ran.status == 0


def test_a_variable_that_is_close_to_the_key_is_refused(drafter: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTER_APIKEY", "sesame")
    ran = drafter("--prompt", "x")
    assert ran.status == 2 and ran.err.splitlines() == [
        "drafter: DRAFTER_APIKEY: no such variable; did you mean DRAFTER_API_KEY?",
        "drafter: '--help' lists the flags",
    ]


def test_unknown_variables_are_reported_except_those_of_kubernetes(
    drafter: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAFTER_SERVICE_HOST", "10.0.0.7")
    monkeypatch.setenv("DRAFTER_PORT", "tcp://10.0.0.7:8000")
    monkeypatch.setenv("DRAFTER_COLOUR", "blue")
    ran = drafter("solo", "--prompt", "")
    assert ran.err.splitlines() == [
        "drafter: DRAFTER_COLOUR: nothing reads this variable, and it is ignored",
        "drafter: the prompt is empty: give at least one character to continue, with --prompt or in standard input",
    ]
