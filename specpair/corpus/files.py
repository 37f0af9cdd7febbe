"""Selects the files of a folder that are indexed: text that people write and read.

In a git repository these are its files and the new ones that it does not ignore; elsewhere all but those in folders
that programs make. Everywhere, names that begin with a dot, links, large files and files of keys are left out.
"""

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

UNREADABLE = "unreadable"  # the reason why a file is skipped that this user may not read
LARGEST = 1 << 20  # bytes; larger files are data, or were made by programs
_MADE = {"__pycache__", "node_modules", "site-packages", "venv", "build", "dist", "target"}
_KEYS = (".pem", ".key", ".p12", ".pfx", ".jks", ".kdbx")
# No program that the repository's own settings name is run.
_GIT = ("git", "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard")


class FoundFile(NamedTuple):
    """A file with its size and times, which show whether it has changed."""

    path: str
    size: int  # bytes
    changed: int  # nanoseconds since the epoch


class Skipped(NamedTuple):
    """The reason why a file is skipped."""

    path: str
    reason: str


def files_of(root: Path) -> Iterator[FoundFile | Skipped]:
    """The files of a folder that are indexed, or the one file `root`; and what is skipped: large files, keys, folders
    that cannot be listed."""
    if root.is_file():
        yield from _looked_at(str(root))
        return
    hidden = list[Skipped]()
    for folder, folders, names in os.walk(root, onerror=lambda error: hidden.append(unreadable(error))):
        if ".git" in (*folders, *names) or Path(folder) == root:
            listed = _listed(folder)
            if listed is not None:
                folders.clear()
                for name in listed:
                    if not any(part.startswith(".") for part in name.split("/")):
                        yield from _looked_at(os.path.join(folder, name))
                continue
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _MADE)
        for name in sorted(names):
            if not name.startswith("."):
                yield from _looked_at(os.path.join(folder, name))
    yield from hidden


def unreadable(error: OSError) -> Skipped:
    """What an error of the system says: this user may not read a file or a folder."""
    return Skipped(os.fsdecode(error.filename), UNREADABLE)


def text_of(path: str) -> str | None:
    """The text of a file; None: it is binary. Raises OSError."""
    with open(path, "rb") as file:
        data = file.read(LARGEST + 1)
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def _looked_at(path: str) -> Iterator[FoundFile | Skipped]:
    try:
        found = os.lstat(path)
    except OSError:  # gone meanwhile, or deleted in the repository's folder but not in the repository
        return
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return
    if path.endswith(_KEYS):
        yield Skipped(path, "keys")
    elif found.st_size > LARGEST:
        yield Skipped(path, "large")
    else:
        yield FoundFile(path, found.st_size, found.st_mtime_ns)


def _listed(folder: str) -> list[str] | None:
    """The files of a git repository or of a folder in it; None: no repository, no git, or git ignores the folder."""
    try:
        done = subprocess.run([*_GIT], cwd=folder, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return sorted({os.fsdecode(name) for name in done.stdout.split(b"\0") if name}) or None
