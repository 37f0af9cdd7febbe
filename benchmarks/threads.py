"""What a forward pass takes by threads and by how they wait for each other, alone and beside a busy process.

Method. Passes of 1 and 4 tokens of two models, the shipped target and the padded stand-in for a large one, each
combination in a process of its own (`step_ms`: medians), since OpenMP reads its settings once. Threads that wait
either sleep at once, wait a moment and then sleep (the default of `backends.llama_cpp.library`), or spin. The busy
process is a Python loop. The whole is repeated `--repeats` times; printed is the median.

    python -m benchmarks.threads [--repeats 3]
"""

import argparse
import os
from contextlib import nullcontext
from pathlib import Path
from statistics import median

from backends.machine import cores
from benchmarks.children import child, output
from benchmarks.harness import padded_target
from benchmarks.report import Report, add_save
from models import DEFAULT_TARGET

WAITING = {
    "sleeping at once": {"OMP_WAIT_POLICY": "passive"},
    "ours": {},
    "spinning": {"OMP_WAIT_POLICY": "active"},
}
WIDTHS = (1, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    add_save(parser)
    options = parser.parse_args()
    report = Report("threads", options)
    for name, model in (("shipped target", DEFAULT_TARGET), ("padded target", padded_target(30.0))):
        for busy in (False, True):
            beside = "beside a busy process" if busy else "alone"
            with child("-c", "while True: pass") if busy else nullcontext():
                _line(report, f"{name}, {beside}, 1 thread", model, 1, WAITING["ours"], options.repeats)
                for waiting, settings in WAITING.items():
                    what = f"{name}, {beside}, {cores()} threads, {waiting}"
                    _line(report, what, model, cores(), settings, options.repeats)
    report.save()


def _line(report: Report, what: str, model: Path, threads: int, settings: dict[str, str], repeats: int) -> None:
    runs = [_measured(model, threads, settings) for _ in range(repeats)]
    figures = "  ".join(f"{width}: {median(run[at] for run in runs):6.1f}" for at, width in enumerate(WIDTHS))
    report.line(f"{what:64} ms by tokens in the pass  {figures}")


def _measured(model: Path, threads: int, settings: dict[str, str]) -> list[float]:
    code = (
        "import sys; from pathlib import Path; from benchmarks.harness import step_ms; "
        f"print(*step_ms(Path(sys.argv[1]), widths={WIDTHS}, threads={threads}, repeats=15).values())"
    )
    inherited = {key: value for key, value in os.environ.items() if key not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    said = output("-c", code, str(model), environment=inherited | settings)
    return [float(figure) for figure in said.split()]


if __name__ == "__main__":
    main()
