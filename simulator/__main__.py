"""`python -m simulator`: simulates a fleet."""

import sys

from specpair.command_line import start


def main() -> int:
    """Run a command and return its exit status."""
    return start.run("simulator.command_line", "simulator")


if __name__ == "__main__":
    sys.exit(main())
