"""`python -m specpair`, also installed as `specpair`: the programs that belong to neither end."""

import sys

from specpair.command_line import start

_PROGRAMS = {"router": "specpair.router.program"}  # of the commands that run; the others are in `own_commands`


def main() -> int:
    """Run a command and return its exit status: 2 for an unknown one."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in _PROGRAMS:
        return start.run(_PROGRAMS[name], f"specpair {name}")
    return start.run("specpair.own_commands", "specpair")


if __name__ == "__main__":
    sys.exit(main())
