"""Compiled programs: how long they take to compile, and the folders where they are kept.

Before a model is compiled, a line says how many programs there are and about how long that takes. What it took is kept
in the folder of compiled programs, for the estimate of the next one.

Published files are seen by others as a whole or not at all, also on a file system that cannot rename: Mountpoint for
Amazon S3 refuses to rename, to change and to lock a file; it writes new files from their beginning to
their end. So files are copied into a folder with a name of its own, and a marker beside it is written last: a small
file with the name of that folder.
"""

import errno
import json
import logging
import math
import os
import secrets
import shutil
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


class Published:
    """The files that are published in `folder` under a name."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self.marker = folder / f"{name}.complete"

    @property
    def path(self) -> Path | None:
        """The folder with the files; None if nothing is published. Raises OSError for another reason than that."""
        try:
            found = self._folder / self.marker.read_text(encoding="utf-8").strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found if found.name.startswith(f"{self._name}.") and found.is_dir() else None  # else it was cut short

    def publish(self, source: Path) -> None:
        """Publish copies of all files below `source`, in place of those that were published before. Raises OSError."""
        before = self.path
        own = self._folder / f"{self._name}.{secrets.token_hex(4)}"
        own.mkdir(parents=True)
        try:
            for file in _files(source):
                _copy(file, own / file.relative_to(source))
            self.marker.unlink(missing_ok=True)
            _write_new(self.marker, own.name)
        except BaseException:
            _leave(own)
            raise
        if before is not None:
            _leave(before)

    def fetch(self, target: Path) -> int:
        """Copy what is published into `target`, but for the files that it has. Returns the number of copied files, 0 if
        nothing is published. Raises OSError."""
        source, copied = self.path, 0
        if source is None:
            return 0
        for file in _files(source):
            wanted = target / file.relative_to(source)
            if not wanted.exists():
                _copy(file, beside := wanted.with_name(f"{wanted.name}.{secrets.token_hex(4)}"))
                os.replace(beside, wanted)  # `target` is on a disk of this machine
                copied += 1
        return copied

    def discard(self) -> None:
        """Delete what is published. Raises OSError."""
        found = self.path
        self.marker.unlink(missing_ok=True)
        if found is not None:
            _delete(found)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _copy(source: Path, target: Path) -> None:
    """Copy the content alone: S3 has no permissions that could be set."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as read, target.open("xb") as written:
        shutil.copyfileobj(read, written, 1 << 20)
        written.flush()
        os.fsync(written.fileno())  # else a machine that ends soon may leave an empty file behind


def _write_new(file: Path, text: str) -> None:
    with file.open("x", encoding="utf-8") as written:
        written.write(text)
        written.flush()
        os.fsync(written.fileno())


def _delete(folder: Path) -> None:
    """Delete a folder and all below. Raises OSError.

    Not by `shutil.rmtree`: on S3 a folder is gone with its last file.
    """
    folders = sorted((each for each in folder.rglob("*") if each.is_dir()), reverse=True)  # the innermost first
    for file in _files(folder):
        file.unlink(missing_ok=True)
    for each in (*folders, folder):
        with suppress(FileNotFoundError):
            each.rmdir()


def _leave(folder: Path) -> None:
    """Delete a folder that no marker names. A failure costs space only, and is logged."""
    try:
        _delete(folder)
    except OSError as error:
        _log.warning("%s is left over, and can be deleted: %s", folder, error.strerror)
