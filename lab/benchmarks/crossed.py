"""What a draft token crosses on its way from the draft model to the text: modules, and threads of both ends.

Method. A verifier with the shipped target, slowed down to 25 ms a step so that drafting pays, and the pair with the
shipped draft model, in one process over loopback. While the tokens `--first` to `--last` of a text are generated,
without lookup, a profile function notes each call of our functions and its thread. Printed are the modules and the
calls by package, and each thread with its modules. What runs once a text, such as the prefill, is not counted.

    python -m lab.benchmarks.crossed [--mode remote] [--lockstep]
"""

import os
import socket
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

import uvicorn

from drafter_client import Options, Pair, Tokens
from lab.benchmarks.harness.report import ROOT, Report, options_of
from lab.simulator.paced.engine import TARGET_25, application

PACKAGES = ("drafter_client", "specpair", "backends", "verifier_server")
PROMPT = "def main():\n    import argparse\n"


class Calls:
    """Counts calls of our functions by module and thread while `on`."""

    def __init__(self) -> None:
        self.on = False
        self._counts: Counter[tuple[str, str]] = Counter()  # by the code's file and the thread's name

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        if self.on and event == "call":
            self._counts[frame.f_code.co_filename, threading.current_thread().name] += 1

    def of_ours(self) -> Counter[tuple[str, str]]:
        """The calls by module, as a path from the repository's root, and thread."""
        found: Counter[tuple[str, str]] = Counter()
        for (file, thread), count in self._counts.items():
            path = Path(file)
            if path.is_relative_to(ROOT) and (inner := path.relative_to(ROOT)).parts[0] in PACKAGES:
                found[str(inner), thread] += count
        return found


def main() -> None:
    flags = {"mode": "remote", "lockstep": False, "first": 24, "last": 88}
    options = options_of(__doc__, flags)
    report, calls = Report("crossed", options), Calls()
    threading.setprofile(calls)
    os.environ["PACED_TARGET"] = str(TARGET_25)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(application(), log_config=None, access_log=False, ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="verifier")
        thread.start()
        with Pair(f"http://127.0.0.1:{listener.getsockname()[1]}") as pair:
            sys.setprofile(calls)
            wanted = Options(max_tokens=options.last + 8, mode=options.mode, lockstep=options.lockstep, lookup=False)
            with pair.generate(PROMPT, wanted) as generation:
                count = 0
                for event in generation:
                    count += len(event.tokens) if isinstance(event, Tokens) else 0
                    calls.on = options.first <= count < options.last
            sys.setprofile(None)
            rounds = generation.stats.rounds
        server.should_exit = True
        thread.join()
    found = calls.of_ours()
    tokens = options.last - options.first
    for package in PACKAGES:
        inside = {module for module, _ in found if module.startswith(package + "/")}
        each = sum(count for (module, _), count in found.items() if module in inside) / tokens
        report.line(f"{package:16} {len(inside):3} modules  {each:6.1f} calls a token")
    report.line(f"{'all':16} {len({module for module, _ in found}):3} modules, {rounds} rounds in the whole text")
    for thread_name in sorted({name for _, name in found}):
        inside = {module for module, name in found if name == thread_name}
        report.line(f"thread {thread_name}: {len(inside)} modules")
    report.save()


if __name__ == "__main__":
    main()
