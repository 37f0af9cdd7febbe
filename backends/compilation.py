"""Compiled programs: the folders that keep them, and the log of their compilation.

Published files are seen by others as a whole or not at all, also on a file system that cannot rename: Mountpoint for
Amazon S3 refuses to rename, to change and to lock a file; it writes new files from their beginning to
their end. So files are copied into a folder with a name of its own, and a marker beside it is written last: a small
file with the name of that folder.
"""

import errno
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

from backends.machine import cache_folder
from specpair.engines.errors import ModelLoadError

_log = logging.getLogger("specpair.compile")


def folder_of(given: Path | None) -> Path | None:
    """The folder for compiled programs, created if missing: `given`, else one in the user's cache folder; None if that
    is not writable.

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


@contextmanager
def compilation(
    model_name: str, programs: int, folder: Path | None, workers: int = 1, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """A context in which a model's programs are compiled, `workers` at a time: logs a line before and after.

    `folder`: where compiled programs are kept; None: nowhere.
    """
    at_a_time = f", {workers} at a time" if workers > 1 else ""
    kept = "" if folder is None else f"; they are kept in {folder}"
    each = f"seconds to minutes each, much less for those compiled before{kept}"
    _log.info("%s: %d programs to compile%s: %s", model_name, programs, at_a_time, each)
    began = clock()
    yield
    _log.info("%s: %d programs compiled and loaded in %.0f s", model_name, programs, clock() - began)


class Published:
    """The files that are published in `folder` under a name."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self.marker = folder / f"{name}.complete"

    @property
    def path(self) -> Path | None:
        """The folder with the files; None if nothing is published. Raises OSError."""
        try:
            found = self._folder / self.marker.read_text(encoding="utf-8").strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found if found.name.startswith(f"{self._name}.") and found.is_dir() else None  # else it was cut short

    def publish(self, source: Path) -> None:
        """Publish copies of all files below `source`, in place of earlier ones. Raises OSError."""
        before = self.path
        own = self._folder / f"{self._name}.{secrets.token_hex(4)}"
        own.mkdir(parents=True)
        try:
            for file in _files(source):
                _copy(file, own / file.relative_to(source))
            self.marker.unlink(missing_ok=True)
            with _new(self.marker) as marker:
                marker.write(own.name.encode())
        except BaseException:
            _leave(own)
            raise
        if before is not None:
            _leave(before)

    def fetch(self, target: Path) -> int:
        """Copy the published files that `target` lacks. Returns the number of copied files, 0 if nothing is published.
        Raises OSError."""
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


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _copy(source: Path, target: Path) -> None:
    """Copy only the content: S3 has no permissions to set."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as read, _new(target) as written:
        shutil.copyfileobj(read, written, 1 << 20)


@contextmanager
def _new(path: Path) -> Iterator[BinaryIO]:
    """A context with a new file, flushed to disk at its end, so that a power-off leaves no empty file."""
    with path.open("xb") as written:
        yield written
        written.flush()
        os.fsync(written.fileno())


def _leave(folder: Path) -> None:
    """Delete a folder that no marker names. Logs a failure, which costs only space.

    Not by `shutil.rmtree`: on S3 a folder is gone with its last file.
    """
    folders = sorted((each for each in folder.rglob("*") if each.is_dir()), reverse=True)  # the innermost first
    try:
        for file in _files(folder):
            file.unlink(missing_ok=True)
        for each in (*folders, folder):
            with suppress(FileNotFoundError):
                each.rmdir()
    except OSError as error:
        _log.warning("%s is left over, and can be deleted: %s", folder, error.strerror)
