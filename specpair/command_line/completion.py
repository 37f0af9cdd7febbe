"""The command `completion` of each program: prints completions of its commands, flags and values. shtab writes them.

The scripts are static: a key press starts no Python.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

import shtab

from specpair.command_line.options import option_of
from specpair.command_line.parser import OneOf, Parser, Parsers

SHELLS = ("bash", "zsh", "fish")
_PATHS = {  # by the placeholder of a value that is a path
    **dict.fromkeys(("FILE", "PATH"), shtab.FILE),
    **dict.fromkeys(("DIR", "FOLDER"), shtab.DIRECTORY),
}


def parser(program: str) -> Parser:
    made = Parser(
        f"{program} completion",
        usage=" | ".join(SHELLS),
        description=f"Print completions of {program}'s commands, flags and values for a shell. The examples show "
        "where each shell reads them.",
        examples=(
            f"source <({program} completion bash)      # in ~/.bashrc",
            f"source <({program} completion zsh)       # in ~/.zshrc, behind compinit",
            f"{program} completion fish >~/.config/fish/completions/{program}.fish",
        ),
    )
    made.add_argument("shell", choices=OneOf(SHELLS), help=", ".join(SHELLS))
    return made


def run(program: str, arguments: Sequence[str], parsers: Callable[[], Parsers]) -> int:
    """Run the command. Returns the exit status. Exits with 2 for bad arguments.

    `parsers`: those of all commands of the program.
    """
    options = parser(program).parse(arguments)
    sys.stdout.write(script(options.shell, parsers()))
    return 0


def script(shell: str, parsers: Parsers) -> str:
    """The completions of a program for a shell of `SHELLS`."""
    written: str = shtab.complete(_with_commands(next(iter(parsers)), parsers), shell)
    # shtab's script for zsh registers itself where `eval` reads it, but not where `source` does.
    return written.replace("$zsh_eval_context[-1] == eval", "$zsh_eval_context[-1] != loadautofunc") + "\n"


def _with_commands(path: str, parsers: Parsers) -> argparse.ArgumentParser:
    """The parser of a command with the parsers of its subcommands, as argparse and shtab expect them."""
    own = parsers[path]()
    made = argparse.ArgumentParser(path, description=own.description, add_help=False)
    below = [each for each in parsers if each.rpartition(" ")[0] == path]
    for action in own.actions():
        # The words of commands are the first argument of a program that does nothing without one.
        if action.help != argparse.SUPPRESS and (action.option_strings or not below):
            made._add_action(_completed(action))
    if below:
        words = made.add_subparsers()
        for each in below:
            child = _with_commands(each, parsers)
            words.add_parser(each.rpartition(" ")[2], parents=[child], add_help=False, help=child.description)
    return made


def _completed(action: argparse.Action) -> argparse.Action:
    """The action with completions of its value: the choices of its option, files or folders."""
    option = option_of(action)
    if not action.choices and option is not None and option.choices:
        action.choices = option.choices
    if not action.choices and action.nargs != 0 and action.metavar in _PATHS:
        vars(action)["complete"] = _PATHS[str(action.metavar)]
    return action
