"""Whether the model files that are mapped into memory are still what was loaded.

A file that is written to in place (`cp new.gguf model.gguf`) changes the weights under the running verifier, and where
it gets shorter, reading them kills the process. One that is replaced by another of the same name (`mv`, what package
managers and downloads do) is none of that: the mapping keeps the old file. So the file is kept open, and looked at
through that, not by its name.
"""

import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

_EVERY = 1.0  # seconds
_SPLIT = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class FileChange:
    """What has happened to a file. `lost`: it has become shorter, so that weights cannot be read any more."""

    reason: str
    lost: bool


class MappedFiles:
    """Files as they were when this was made, which is before they are mapped. Close it."""

    def __init__(self, paths: Iterable[Path], clock: Callable[[], float] = time.monotonic) -> None:
        """`paths` that cannot be opened are left out: loading says what is wrong with them. `clock` in seconds."""
        self._clock = clock
        self._open: list[tuple[Path, int, os.stat_result]] = []
        for path in paths:
            try:
                handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            except OSError:
                continue
            self._open.append((path, handle, os.fstat(handle)))
        self._looked: float | None = None
        self._change: FileChange | None = None

    def change(self) -> FileChange | None:
        """What has happened to one of them, the worst first; looked for once a second at most."""
        now = self._clock()
        if self._looked is None or now - self._looked >= _EVERY:
            self._looked = now
            changes = [change for path, handle, before in self._open if (change := _compare(path, handle, before))]
            self._change = max(changes, key=lambda change: change.lost, default=None)
        return self._change

    def close(self) -> None:
        """Let go of the files."""
        for _, handle, _ in self._open:
            os.close(handle)
        self._open = []


def parts(path: Path) -> list[Path]:
    """All files of a model of which one is named: those of a split GGUF are mapped together."""
    split = _SPLIT.fullmatch(path.name)
    if split is None:
        return [path]
    stem, count = split[1], int(split[2])
    return [path.with_name(f"{stem}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]


def _compare(path: Path, handle: int, before: os.stat_result) -> FileChange | None:
    now = os.fstat(handle)
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
