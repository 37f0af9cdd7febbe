"""`specpair simulator`: simulates a fleet."""

import signal
import sys

from specpair.command_line import start


def main() -> int:
    """Run a command and return its exit status. SIGTERM acts as Ctrl-C: the command shows the results so far."""
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    return start.run("lab.simulator.command_line", "simulator")


if __name__ == "__main__":
    sys.exit(main())
