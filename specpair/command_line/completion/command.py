"""The command `completion` of each program."""

import sys
from collections.abc import Callable, Mapping, Sequence

from specpair.command_line.completion import bash, fish, zsh
from specpair.command_line.completion.accepted import Command, Parsers, accepted
from specpair.command_line.parser import OneOf, Parser

SHELLS: Mapping[str, Callable[[str, Sequence[Command]], str]] = {
    "bash": bash.script,
    "zsh": zsh.script,
    "fish": fish.script,
}


def parser(program: str) -> Parser:
    """The parser of `PROGRAM completion`."""
    made = Parser(
        f"{program} completion",
        usage=" | ".join(SHELLS),
        description=f"Print completions of {program}'s commands, flags and values for a shell, which a line in its "
        "start-up file, or a file in one of its folders, takes.",
        examples=(
            f"source <({program} completion bash)      # in ~/.bashrc",
            f"source <({program} completion zsh)       # in ~/.zshrc, behind compinit",
            f"{program} completion fish >~/.config/fish/completions/{program}.fish",
        ),
    )
    made.add_argument("shell", choices=OneOf(tuple(SHELLS)), help=", ".join(SHELLS))
    return made


def run(program: str, arguments: Sequence[str], parsers: Callable[[], Parsers]) -> int:
    """Run the command. Returns the exit status. Exits with 2 for bad arguments.

    `parsers`: those of all commands of the program.
    """
    options = parser(program).parse(arguments)
    sys.stdout.write(SHELLS[options.shell](program, accepted(parsers())))
    return 0
