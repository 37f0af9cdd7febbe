"""The program of `make demo`."""

import sys

from specpair.command_line import start


def main() -> int:
    """Run the demo. Returns the exit status."""
    return start.run("examples.demo_program", "demo")


if __name__ == "__main__":
    sys.exit(main())
