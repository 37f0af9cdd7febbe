"""`make demo`: runs a verifier and a drafter as two processes on this machine and prints statistics."""

import argparse
import shutil
import sys
import textwrap

from lab.simulator.paced.padded_target import padded_target, step_ms
from models import DEFAULT_TWIN
from specpair.child_processes.children import child
from specpair.child_processes.serving import NotUp, verifier
from specpair.command_line import start

STEP_MS = 40.0  # milliseconds of a verifier pass over one token
INTERRUPTED = 130  # exit status
PROMPT = 'import os\n\n\ndef remove(path):\n    """Remove a file."""\n'
TEMPERATURE, SEED = "0.4", "3"


def main() -> int:
    """Run the demo. Returns the drafter's exit status, 1 if the verifier did not start, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--step-ms", type=float, default=STEP_MS, help="of a step of the target (default: %(default)g)")
    parser.add_argument("--max-tokens", type=int, default=120, help="length of the text (default: %(default)s)")
    options = parser.parse_args()
    try:
        start.catch_interrupts()
        return _show(options.step_ms, options.max_tokens)
    except KeyboardInterrupt:
        print("\ndemo: interrupted", file=sys.stderr)
        return INTERRUPTED
    except NotUp as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


def _show(wanted_ms: float, max_tokens: int) -> int:
    _say("making the target that ships as slow as a large one …")
    target = padded_target(wanted_ms)
    cost = step_ms(target)
    _say(
        "by itself it is so small that the network would cost more time than drafting saves. With idle layers and "
        f"neurons it writes the same text, but takes {cost:.0f} ms a step here."
    )
    with verifier(model=target, threads=1, slots=2, context=1024) as server:
        command = ["-m", "drafter_client", "--mode", "remote", "--verifier", server.url, "--threads", "1", "--baseline"]
        command += ["--draft-model", str(DEFAULT_TWIN), "--prompt", PROMPT, "--max-tokens", str(max_tokens)]
        command += ["--temperature", TEMPERATURE, "--seed", SEED]
        _say(f"the drafter is the same model in 4 bits, the text is sampled at temperature {TEMPERATURE}")
        print(flush=True)
        with child(*command, in_foreground=True) as drafter:
            try:
                return drafter.wait()
            except KeyboardInterrupt:  # the drafter gets the signal, too, and ends by itself
                return drafter.wait()


def _say(text: str) -> None:
    """Print a message, wrapped to the terminal's width."""
    print(textwrap.fill(f"demo: {text}", shutil.get_terminal_size().columns), flush=True)
