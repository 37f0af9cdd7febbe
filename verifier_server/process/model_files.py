"""Detects changes to model files that are mapped into memory.

Writing to such a file in place (`cp new.gguf model.gguf`) changes the weights of the running verifier. If the file gets
shorter, reading the missing weights kills the process. Replacing the file by another of the same name (`mv`, as package
managers and downloads do) is harmless: the mapping keeps the old file. Therefore the file is kept open, and its state
is read from the descriptor and not from its name.
"""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from models.hub.names import parts_of

CHECK_EVERY = 1.0  # seconds between two checks


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change to a model file. `lost`: whether it has become shorter, so that some weights cannot be read any more."""

    reason: str
    lost: bool


class MappedFiles:
    """Watches files for changes. Create it before the files are mapped, and close it after use."""

    def __init__(self, paths: Iterable[Path], clock: Callable[[], float] = time.monotonic) -> None:
        """Skips `paths` that cannot be opened: loading reports what is wrong with them. `clock`: in seconds."""
        self._clock = clock
        self._open: list[tuple[Path, int, os.stat_result]] = []
        for path in paths:
            try:
                descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            except OSError:
                continue
            self._open.append((path, descriptor, os.fstat(descriptor)))
        self._checked: float | None = None
        self._change: FileChange | None = None

    def change(self) -> FileChange | None:
        """The worst change to one of the files, or None. The files are checked once a second at most."""
        now = self._clock()
        if self._checked is None or now - self._checked >= CHECK_EVERY:
            self._checked = now
            changes = [
                change for path, descriptor, before in self._open if (change := _compare(path, descriptor, before))
            ]
            self._change = max(changes, key=lambda change: change.lost, default=None)
        return self._change

    def close(self) -> None:
        """Close the files, and watch them no longer."""
        for _, descriptor, _ in self._open:
            os.close(descriptor)
        self._open = []


def parts(path: Path) -> list[Path]:
    """All files of the model at `path`: the parts of a split GGUF are mapped together."""
    return [path.with_name(name) for name in parts_of(path.name)]


def _compare(path: Path, descriptor: int, before: os.stat_result) -> FileChange | None:
    now = os.fstat(descriptor)
    if now.st_size < before.st_size:
        return FileChange(
            f"the model file {path} was cut from {before.st_size} to {now.st_size} bytes while it is in use: put the "
            "whole file in place and restart the verifier",
            lost=True,
        )
    if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        return FileChange(
            f"the model file {path} was written to while it is in use, so texts may be wrong: restart the verifier, "
            "and replace files by renaming (mv), not by writing over them",
            lost=False,
        )
    return None
