"""Results as they come, on the terminal and, at the end, in `.cache/results/`, or `benchmarks/results/` with `--save`.

So that a run for a look, or one on another machine, does not write over the results that the repository shows.
"""

import argparse
import datetime
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backends.machine import cores
from benchmarks.extras import need

RESULTS = Path(__file__).resolve().parent / "results"
UNSAVED = RESULTS.parents[1] / ".cache" / "results"


def add_save(parser: argparse.ArgumentParser) -> None:
    """The flag that decides where results go."""
    parser.add_argument(
        "--save", action="store_true", help="write the results to benchmarks/results/ (default: to .cache/results/)"
    )


def results(options: argparse.Namespace) -> Path:
    """The folder for results: that of the repository only with `--save`."""
    folder = RESULTS if options.save else UNSAVED
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Report:
    """Lines of one measurement, under a head that says when, where and with which options."""

    def __init__(
        self, name: str, options: argparse.Namespace, file: str | None = None, folder: Path | None = None
    ) -> None:
        self._path = (folder or results(options)) / f"{file or name}.txt"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lines: list[str] = []
        today = datetime.datetime.now(tz=datetime.UTC).date()
        chosen = {key: value for key, value in vars(options).items() if value is not None and value is not False}
        given = " ".join(_given(key, value) for key, value in chosen.items())
        self.line(f"# python -m benchmarks.{name} {given}")
        self.line(f"# {today}, {processor()}, {cores()} cores, Python {platform.python_version()}")

    def line(self, text: str) -> None:
        """Print a line and keep it."""
        print(text, flush=True)
        self._lines.append(text)

    def save(self) -> None:
        """Write all lines to the results folder, and say where."""
        self._path.write_text("\n".join(self._lines) + "\n", encoding="utf-8")
        print(f"written to {self._path}", file=sys.stderr)

    def beside(self, ending: str) -> Path:
        """A file of the same results with another ending: `.png`."""
        return self._path.with_name(self._path.stem + ending)


@contextmanager
def plot(path: Path, rows: int = 1, columns: int = 1) -> Iterator[Any]:
    """Axes to draw on, as a list of rows; saved as PNG at the end. Ends the program where matplotlib is missing."""
    need("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained")
    yield figure.subplots(rows, columns, squeeze=False).tolist()
    figure.savefig(path, dpi=110)


def _given(key: str, value: Any) -> str:
    """An option as it would be typed."""
    name = f"--{key.replace('_', '-')}"
    if value is True:
        return name
    return f"{name} {' '.join(map(str, value)) if isinstance(value, list) else value}"


def processor() -> str:
    """The processor's name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # no procfs here
    return platform.processor() or platform.machine()
