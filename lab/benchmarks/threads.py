"""What a forward pass takes by threads and by how they wait for each other, alone and beside a busy process.

Method. Passes of 1 and 4 tokens of the shipped target and of a padded one, each combination in a process of its own,
since OpenMP reads its settings once. Threads that wait sleep at once, or spin for a moment and then sleep (`ours`, the
default of `backends.llama_cpp.library`; `until teams exceed the cores`: only while the process has no more threads than
cores), or spin. The busy process is a Python loop. In `a second thread`: after the main thread ran passes, too, so that
each has a team of threads. Printed: the median over `--repeats`.

    python -m lab.benchmarks.threads [--repeats 3]
"""

import os
from contextlib import nullcontext
from pathlib import Path
from statistics import median

from backends.machine import cores
from lab.benchmarks.harness.report import Report, options_of
from lab.simulator.paced.padded_target import padded_target
from models import DEFAULT_TARGET
from specpair.child_processes.children import child, output

WAITING = {
    "sleeping at once": {"OMP_WAIT_POLICY": "passive"},
    "until teams exceed the cores": {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "1000"},
    "ours": {},
    "spinning": {"OMP_WAIT_POLICY": "active"},
}
WIDTHS = (1, 4)
CODE = (
    "import sys; from pathlib import Path; from concurrent.futures import ThreadPoolExecutor; "
    "from lab.simulator.paced.padded_target import step_ms; "
    f"times = lambda: step_ms(Path(sys.argv[1]), widths={WIDTHS}, threads=int(sys.argv[2]), repeats=15).values(); "
    "print(*times(), *ThreadPoolExecutor(1).submit(times).result())"
)


def main() -> None:
    options = options_of(__doc__, {"repeats": 3})
    report = Report("threads", options)
    for name, model in (("shipped target", DEFAULT_TARGET), ("padded target", padded_target(30.0))):
        for beside, busy in (("alone", False), ("beside a busy process", True)):
            several = [(f"{cores()} threads, {waiting}", cores(), waiting) for waiting in WAITING]
            with child("-c", "while True: pass") if busy else nullcontext():
                for what, threads, waiting in [("1 thread", 1, "ours"), *several]:
                    runs = [_measured(model, threads, WAITING[waiting]) for _ in range(options.repeats)]
                    for first, where in ((0, ""), (len(WIDTHS), ", a second thread")):
                        columns = enumerate(WIDTHS, first)
                        times = (f"{width}: {median(run[at] for run in runs):6.1f}" for at, width in columns)
                        shown = f"{name}, {beside}, {what}{where}"
                        report.line(f"{shown:92} ms by tokens in the pass  {'  '.join(times)}")
    report.save()


def _measured(model: Path, threads: int, settings: dict[str, str]) -> list[float]:
    inherited = {key: value for key, value in os.environ.items() if key not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    return [float(ms) for ms in output("-c", CODE, str(model), str(threads), environment=inherited | settings).split()]


if __name__ == "__main__":
    main()
