"""The program `drafter`, which `python -m drafter_client` starts, too."""

import sys

from specpair.command_line import start


def main() -> int:
    return start.run("drafter_client.cli.program", "drafter")


if __name__ == "__main__":
    sys.exit(main())
