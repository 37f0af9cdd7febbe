"""Results as they come, on the terminal and, at the end, in `benchmarks/results/`."""

import argparse
import datetime
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backends.machine import cores

RESULTS = Path(__file__).resolve().parent / "results"


class Report:
    """Lines of one measurement, under a head that says when, where and with which options."""

    def __init__(self, name: str, options: argparse.Namespace, file: str | None = None, folder: Path = RESULTS) -> None:
        self._path = folder / f"{file or name}.txt"
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
        """Write all lines to the results folder."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text("\n".join(self._lines) + "\n", encoding="utf-8")


@contextmanager
def plot(path: Path, rows: int = 1, columns: int = 1) -> Iterator[Any]:
    """Axes to draw on, as a list of rows; saved as PNG at the end. Raises SystemExit where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("figures need matplotlib: .venv/bin/pip install -r requirements-benchmarks.txt") from None
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
