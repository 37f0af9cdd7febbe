"""`python -m specpair`, also installed as `specpair`: the programs that belong to neither end."""

import sys

from specpair.command_line import start

_COMMANDS = {"router": "specpair.router.program"}


def main() -> int:
    """Run a command and return its exit status: 2 for an unknown one."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in _COMMANDS:
        return start.run(_COMMANDS[name], f"specpair {name}")
    from specpair.command_line.parser import OneOf, Parser  # the commands have parsers of their own

    parser = Parser(
        "specpair",
        usage="COMMAND [FLAGS]",
        description="Programs that belong to neither end. The two ends are 'verifier' and 'drafter'.",
        examples=("specpair router --help",),
    )
    parser.add_argument("command", choices=OneOf(tuple(_COMMANDS)), metavar="COMMAND", help=", ".join(_COMMANDS))
    parser.parse(sys.argv[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
