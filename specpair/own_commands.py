"""The command line of `specpair`: the parsers of its commands, and the commands that are about these."""

import sys

from specpair.command_line.completion import command as completion
from specpair.command_line.completion.accepted import Parsers
from specpair.command_line.manual import command as manual
from specpair.command_line.parser import OneOf, Parser
from specpair.http_service.keys import key_command
from specpair.programs import PROGRAMS, parser_of

COMMANDS = (*PROGRAMS, "completion", "man")


def parser() -> Parser:
    """The parser of the first word. Each command has one of its own."""
    made = Parser(
        "specpair",
        usage="COMMAND [FLAGS]",
        description="Programs that belong to neither end: 'router' is one address in front of several verifiers, "
        "'doctor' says what this machine can do for a pair. The two ends are 'verifier' and 'drafter'.",
        examples=("specpair router --help", "specpair doctor --verifier http://bigbox:8000"),
    )
    made.add_argument("command", choices=OneOf(COMMANDS), metavar="COMMAND", help=", ".join(COMMANDS))
    return made


def _router_parser() -> Parser:
    from specpair.router.settings import flags_parser  # with what a service needs

    return flags_parser()


PARSERS: Parsers = {
    "specpair": parser,
    "specpair router": _router_parser,
    "specpair router key": lambda: key_command.parser("specpair router"),
    "specpair doctor": lambda: parser_of("doctor"),
    "specpair completion": lambda: completion.parser("specpair"),
    "specpair man": lambda: manual.parser("specpair"),
}


def main() -> int:
    """Run `completion` or `man`; without the name of a command, show help or refuse. Returns the exit status."""
    runs = {"completion": completion.run, "man": manual.run}
    run = runs.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if run is not None:
        return run("specpair", sys.argv[2:], lambda: PARSERS)
    parser().parse(sys.argv[1:])
    return 0
