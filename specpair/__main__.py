"""`python -m specpair`, also installed as `specpair`: the programs of neither the verifier nor the drafter."""

import sys

from specpair.command_line import start
from specpair.programs import PROGRAMS
from specpair.siblings import import_siblings


def main() -> int:
    """Run a command and return its exit status: 2 for an unknown one."""
    import_siblings()  # the router and the completions import them
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in PROGRAMS:
        return start.run(PROGRAMS[name], f"specpair {name}")
    return start.run("specpair.own_commands", "specpair")


if __name__ == "__main__":
    sys.exit(main())
