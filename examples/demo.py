"""`make demo`: a verifier and a drafter as two processes on this machine, with measured figures at the end."""

import subprocess
import sys

from backends.shipped import DEFAULT_TWIN
from benchmarks.harness import ROOT, padded_target, step_ms, verifier

STEP_MS = 40
PROMPT = "import unittest\n\n\nclass TestQueue(unittest.TestCase):\n    def test_put(self):\n"


def main() -> int:
    """Exit status of the drafter."""
    print(f"demo: looking for the size at which a step of the target takes some {STEP_MS} ms here …", flush=True)
    target = padded_target(STEP_MS)
    cost = step_ms(target)[1]
    print(
        f"demo: the shipped target is so small that the network would cost more than drafting saves, so it is served "
        f"with idle layers and neurons: same text, {cost:.0f} ms a step, as a large model would take.",
        flush=True,
    )
    with verifier(model=target, threads=1, rows=2, context=1024) as server:
        command = [sys.executable, "-m", "drafter_client", "--verifier", server.url, "--threads", "1"]
        command += ["--draft-model", str(DEFAULT_TWIN), "--prompt", PROMPT, "--max-tokens", "120"]
        command += ["--temperature", "0.8", "--seed", "3", "--baseline"]
        print("demo: the drafter is the same model in 4 bits, the text is sampled at temperature 0.8\n", flush=True)
        with subprocess.Popen(command, cwd=ROOT) as drafter:
            try:
                return drafter.wait()
            except KeyboardInterrupt:  # it got that too, and ends by itself
                return drafter.wait()


if __name__ == "__main__":
    sys.exit(main())
