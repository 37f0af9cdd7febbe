"""The command line of `specpair`: the parsers of its commands, help and `completion`."""

import sys

from specpair.command_line import completion
from specpair.command_line.parser import OneOf, Parser, Parsers
from specpair.http_service.keys import key_command
from specpair.programs import PROGRAMS, lab_command, lab_parsers, parser_of

COMMANDS = (*PROGRAMS, "simulator", "completion")


def parser() -> Parser:
    """The parser of the first word. Each command has one of its own."""
    made = Parser(
        "specpair",
        usage="COMMAND [FLAGS]",
        description="Commands besides 'verifier' and 'drafter': 'router' offers several verifiers under one "
        "address, 'doctor' checks this machine, 'simulator' tries fleets of machines before you buy "
        "them, 'completion' prints completions for a shell.",
        examples=("specpair router --help", "specpair doctor --verifier http://bigbox:8000"),
    )
    made.add_argument("command", choices=OneOf(COMMANDS), metavar="COMMAND", help=", ".join(COMMANDS))
    return made


_PARSERS: Parsers = {
    "specpair": parser,
    "specpair router": lambda: parser_of("router"),
    "specpair router key": lambda: key_command.parser("specpair router"),
    "specpair doctor": lambda: parser_of("doctor"),
    "specpair completion": lambda: completion.parser("specpair"),
}


def parsers() -> Parsers:
    """By command, those of the lab among them if it is installed."""
    return {**_PARSERS, **lab_parsers("specpair")}


def main() -> int:
    """Run `completion` or a command of the lab. Without a command, show help or refuse. Returns the exit status."""
    if (command := lab_command("specpair", sys.argv[1:])) is not None:
        return command.run(sys.argv[2:])
    if sys.argv[1:2] == ["completion"]:
        return completion.run("specpair", sys.argv[2:], parsers)
    parser().parse(sys.argv[1:])
    return 0
