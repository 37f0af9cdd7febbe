"""Says before a model is compiled how many programs there are and about how long that takes, and measures it.

What a compilation took is kept in the folder of compiled programs, for the estimate of the next one.
"""

import errno
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from backends.machine import cache_folder
from specpair.engines.errors import ModelLoadError

FILE = "times.json"  # in the folder of compiled programs: by engine, the seconds that a layer of a program took
# Seconds that a layer of a program takes to compile, as long as none was measured. A guess: nothing of it has been
# measured on Trainium.
GUESS = 4.0
_QUICK = 1.0  # seconds for a program, on average: less than this means that programs were found compiled

_log = logging.getLogger("specpair.compile")


def folder_of(given: Path | None) -> Path | None:
    """The folder where compiled programs are kept, made if it is not there: `given`, else one in the user's cache
    folder; None if that one cannot be written to.

    Raises ModelLoadError if `given` cannot be written to.
    """
    usual = cache_folder()
    folder = given if given is not None or usual is None else usual / "compiled"
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        if given is not None:
            raise ModelLoadError(f"compile_cache {folder}: cannot be written to: {reason}", "compile_cache") from None
        _warn_once(folder, reason)
        return None
    return folder


@cache
def _warn_once(folder: Path, reason: str) -> None:
    _log.warning("compiled programs cannot be kept in %s: %s: set compile_cache", folder, reason)


@dataclass(frozen=True, slots=True)
class Compilation:
    """A model that is about to be compiled: `programs` of `layers` layers, `workers` of them at a time."""

    engine: str
    model_name: str
    programs: int
    layers: int
    workers: int = 1
    folder: Path | None = None  # where compiled programs are kept; None: nowhere

    @property
    def seconds(self) -> float:
        """About how long it takes, if no program is found compiled."""
        rounds = math.ceil(self.programs / self.workers)
        return rounds * self.layers * self._measured().get(self.engine, GUESS)

    def announcement(self) -> str:
        """One line for the log, before the compilation begins."""
        basis = "as measured here" if self.engine in self._measured() else "a guess: nothing was measured here yet"
        at_a_time = f", {self.workers} at a time" if self.workers > 1 else ""
        kept = "" if self.folder is None else f"; they are kept in {self.folder}"
        return (
            f"{self.model_name}: {self.programs} programs to compile{at_a_time}, about {_long(self.seconds)} "
            f"({basis}), much less for those compiled before{kept}"
        )

    @contextmanager
    def measured(self, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
        """A context in which the programs are compiled: logs a line before and after, and keeps what it took."""
        _log.info("%s", self.announcement())
        began = clock()
        yield
        took = clock() - began
        _log.info("%s: %d programs compiled and loaded in %s", self.model_name, self.programs, _long(took))
        rounds = math.ceil(self.programs / self.workers)
        if self.folder is not None and took / rounds >= _QUICK:
            known = self._measured()
            # The greatest: where some programs were found compiled, it took less time than all of them would.
            times = {**known, self.engine: max(took / rounds / self.layers, known.get(self.engine, 0.0))}
            with suppress(OSError):  # a folder that cannot be written to costs the next estimate only
                self.folder.mkdir(parents=True, exist_ok=True)
                (self.folder / FILE).write_text(json.dumps(times), encoding="utf-8")

    def _measured(self) -> dict[str, float]:
        """The seconds that a layer of a program took, by engine."""
        if self.folder is None:
            return {}
        try:
            found = json.loads((self.folder / FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        items = found.items() if isinstance(found, dict) else ()
        return {name: float(value) for name, value in items if isinstance(value, (int, float)) and 0 < value < math.inf}


def _long(seconds: float) -> str:
    """A duration in words: seconds below two minutes, else minutes."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
