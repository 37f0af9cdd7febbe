"""`python -m verifier_server`, also installed as `verifier`."""

import sys

from specpair.command_line import start


def main() -> int:
    """Run the verifier. Returns the exit status."""
    return start.run("verifier_server.program", "verifier")


if __name__ == "__main__":
    sys.exit(main())
