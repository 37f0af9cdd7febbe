"""The program `drafter`, which `python -m drafter_client` starts, too."""

import sys

from specpair.command_line import start


def main() -> int:
    """Run the command line and return its exit status."""
    return start.run("drafter_client.cli.program", "drafter")


if __name__ == "__main__":
    sys.exit(main())
