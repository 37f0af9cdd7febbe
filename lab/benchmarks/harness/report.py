"""The options and the results of an experiment: printed as they come, and saved in a file at the end.

Results go to `.cache/results/`, and to `lab/benchmarks/results/` only with `--save`: a trial run, or one on another
machine, does not overwrite what the repository shows.
"""

import argparse
import datetime
import importlib.util
import json
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from backends import machine

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "lab" / "benchmarks" / "results"
UNSAVED = ROOT / ".cache" / "results"
_VECTORS = {"amx_int8": "with AMX", "avx512_vnni": "with AVX-512 VNNI", "avx512f": "with AVX-512", "avx2": "with AVX2"}
_LISTS = {  # where the packages are named that one program or another needs
    "playwright": "requirements/browser.txt",
    "PIL": "requirements/lab.txt",
    "pyte": "requirements/dev.txt",
    "cryptography": "requirements/dev.txt",
    "torch": "requirements/torch.txt",
    "transformers": "requirements/torch.txt",
    "llama_cpp": "requirements.txt",
}


def need(*packages: str) -> None:
    """End the program with status 2, and one line that says what to install, unless all packages are installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        lists = " ".join(f"-r {file}" for file in dict.fromkeys(_LISTS[name] for name in missing))
        command = f"{sys.executable} -m pip install {lists}"
        print(f"not installed: {', '.join(missing)}; install with: {command}", file=sys.stderr)
        raise SystemExit(2)


def parser_of(description: str | None, flags: Mapping[str, Any]) -> argparse.ArgumentParser:
    """A parser for `--save` and `flags`: each name with its default, or with a dict of arguments for `add_argument`.

    A default of False makes a switch; a list takes one value or more. Types are those of the defaults.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, given in flags.items():
        how = dict(given) if isinstance(given, dict) else {"default": given}
        default = how.get("default")
        if default is False:
            how["action"] = "store_true"
        elif isinstance(default, list):
            how = {"nargs": "+", "type": type(default[0])} | how
        elif default is not None:
            how.setdefault("type", type(default))
        parser.add_argument(f"--{name}", **how)
    where = "write the results to lab/benchmarks/results/ (default: to .cache/results/)"
    parser.add_argument("--save", action="store_true", help=where)
    return parser


def options_of(description: str | None, flags: Mapping[str, Any], *needs: str) -> argparse.Namespace:
    """The command line's options, as `parser_of` describes; ends the program if a package in `needs` is missing."""
    options = parser_of(description, flags).parse_args()
    need(*needs)
    return options


class Report:
    """The lines of one experiment, below a head with date, machine and options."""

    def __init__(
        self, name: str, options: argparse.Namespace, file: str | None = None, folder: Path | None = None
    ) -> None:
        self._path = (folder or (RESULTS if options.save else UNSAVED)) / f"{file or name}.txt"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lines: list[str] = []
        today = datetime.datetime.now(tz=datetime.UTC).date()
        chosen = {key: value for key, value in vars(options).items() if value is not None and value is not False}
        self.line(f"# python -m lab.benchmarks.{name} {' '.join(_typed(key, value) for key, value in chosen.items())}")
        self.line(f"# {today}, {processor()}, {machine.cores()} cores, Python {platform.python_version()}")

    @property
    def head(self) -> str:
        """Date, machine and options of the experiment."""
        return " ".join(line.removeprefix("# ") for line in self._lines[:2])

    def line(self, *lines: str) -> None:
        """Print lines and keep them."""
        for each in lines:
            print(each, flush=True)
        self._lines += lines

    def save(self) -> None:
        """Write all lines to the results folder, and print the path."""
        self._path.write_text("\n".join(self._lines) + "\n", encoding="utf-8")
        print(f"written to {self._path}", file=sys.stderr)

    def companion(self, ending: str) -> Path:
        """A file of the same results with another ending, such as `.json`."""
        return self._path.with_name(self._path.stem + ending)

    def keep(self, record: Mapping[str, Any]) -> None:
        """Add a record to the `.jsonl` beside the results, so that a run can be stopped and resumed."""
        with self.companion(".jsonl").open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record) + "\n")

    def kept(self) -> list[dict[str, Any]]:
        """The records that this run and earlier runs have kept."""
        file = self.companion(".jsonl")
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def _typed(key: str, value: Any) -> str:
    """An option as typed."""
    name = f"--{key.replace('_', '-')}"
    if value is True:
        return name
    return f"{name} {' '.join(map(str, value)) if isinstance(value, list) else value}"


def processor() -> str:
    """The processor's name and its widest vector instructions, where the system tells them."""
    known = list[str]()
    with suppress(OSError):  # there may be no procfs
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        known = next((line.split() for line in lines if line.startswith("flags")), known)
    widest = next((name for flag, name in _VECTORS.items() if flag in known), "")
    return f"{machine.processor()} {widest}".strip()
