"""The cache that huggingface_hub and llama.cpp share: the paths of a repository's files, and whether they are complete.

A repository's folder holds the contents by their hash (blobs/HASH), names that link to them (snapshots/COMMIT/NAME),
and the commit of the newest listing (refs/main). Ours beside them: specpair/COMMIT.json, the listing with all sizes, so
that a file can be trusted without the hub; and blobs/HASH.part, a file that is being fetched, or was interrupted.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from models.errors import BadName, HubError
from models.hub.names import parse_name
from specpair.shared_files import lock, replacing

_PREFIX = "models--"
_HEXADECIMAL = re.compile(r"[0-9a-f]{8,64}")
_BLOB = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_UNKNOWN = "0" * 40  # in place of the hash of a content that the cache has under its name alone
_OBEYED = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")  # by terminals
_LONGEST_PATH, _LONGEST_PART = 1024, 255  # bytes of a file's path, and of each of its parts
_LARGEST = 1 << 50  # bytes of a file
_TOLD = 200  # letters of a wrong value that an error shows
_log = logging.getLogger("models.hub")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository. `size`: bytes. `blob`: its hash as the hub names it, see `hashing`."""

    path: str
    size: int
    blob: str

    def __post_init__(self) -> None:
        """Raises HubError if the hub or the cache names a path outside of the cache, a name with control characters, or
        no file."""
        named, hashed = _is_path(self.path), isinstance(self.blob, str) and _BLOB.fullmatch(self.blob)
        if not (named and hashed and type(self.size) is int and 0 <= self.size <= _LARGEST):
            path, size, blob = (repr(each)[:_TOLD] for each in (self.path, self.size, self.blob))
            raise HubError(f"a listing names the file {path} of {size} bytes with the hash {blob}: it is no listing")

    def hashing(self) -> Any:
        """The hash object for `blob`: SHA-256 for a large file, git's hash for a small one."""
        if len(self.blob) == 40:
            return hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        return hashlib.sha256()


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a repository in the hub's order. `complete`: whether the hub listed them; else, the cache did."""

    repository: str
    commit: str
    files: tuple[HubFile, ...]
    complete: bool = True

    def __post_init__(self) -> None:
        if not _HEXADECIMAL.fullmatch(self.commit):
            raise HubError(f"the listing of {self.repository} is of the commit {self.commit!r}: it is no listing")

    @property
    def paths(self) -> list[str]:
        """The names of the files."""
        return [file.path for file in self.files]

    def chosen(self, paths: list[str]) -> list[HubFile]:
        """The files of these names."""
        by_path = {file.path: file for file in self.files}
        return [by_path[path] for path in paths]


class RepositoryCache:
    """A repository's folder in the cache."""

    def __init__(self, cache: Path, repository: str) -> None:
        """`cache`: the folder of all repositories."""
        self._name = f"{_PREFIX}{repository.replace('/', '--')}"
        self._repository = repository
        self._locks = cache / ".locks" / self._name
        self.folder = cache / self._name

    def path(self, listing: Listing, file: HubFile) -> Path:
        """The path of a file by its name."""
        return self.folder / "snapshots" / listing.commit / file.path

    def blob(self, file: HubFile) -> Path:
        """The path of a file's content."""
        return self.folder / "blobs" / file.blob

    def part(self, file: HubFile) -> Path:
        """The path of a partly fetched file."""
        return self.folder / "blobs" / f"{file.blob}.part"

    def has(self, listing: Listing, file: HubFile) -> bool:
        """Whether the cache has the complete file. If it has only the content, names it."""
        if _size(self.path(listing, file)) == file.size:
            return True
        if _size(self.blob(file)) != file.size:
            return False
        with suppress(OSError):  # a cache that cannot be written
            self.name(listing, file)
            return True
        return False

    def name(self, listing: Listing, file: HubFile) -> None:
        """Give a cached content its name."""
        path = self.path(listing, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            path.unlink()
        try:
            path.symlink_to(os.path.relpath(self.blob(file), path.parent))
        except FileExistsError:  # another process was faster
            pass
        except OSError:  # no links here: Windows without developer mode, exFAT, some network shares
            os.replace(self.blob(file), path)

    def newest(self) -> Listing | None:
        """The newest stored listing, or else the files that other tools have fetched; None: there are none."""
        try:
            commit = (self.folder / "refs" / "main").read_text(encoding="ascii", errors="replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            _log.warning("%s is left out: the cache cannot be read: %s", self._repository, error)
            return None
        if not _HEXADECIMAL.fullmatch(commit):
            return None
        return self._kept(self.folder / "specpair" / f"{commit}.json") or self._found(commit)

    def listings(self) -> Iterator[Listing]:
        """All stored listings, also of partly fetched models, without damaged records."""
        yield from filter(None, map(self._kept, sorted((self.folder / "specpair").glob("*.json"))))

    def _kept(self, record: Path) -> Listing | None:
        """A stored listing; None: it is missing, unreadable or damaged."""
        with suppress(OSError, ValueError, TypeError, RecursionError, HubError):
            kept = json.loads(record.read_bytes())
            return Listing(self._repository, record.stem, tuple(HubFile(*each) for each in kept))
        return None

    def _found(self, commit: str) -> Listing:
        """The named files of a commit, as links to their contents, or as the contents on systems without links."""
        snapshot, files = self.folder / "snapshots" / commit, []
        for path in sorted(snapshot.rglob("*")):
            with suppress(OSError, HubError):
                if path.is_file():
                    blob = path.resolve().name
                    known = blob if _BLOB.fullmatch(blob) else _UNKNOWN
                    files.append(HubFile(path.relative_to(snapshot).as_posix(), path.stat().st_size, known))
        return Listing(self._repository, commit, tuple(files), complete=False)

    def begin(self, listing: Listing) -> None:
        """Store a listing, which names partly fetched files."""
        kept = [(file.path, file.size, file.blob) for file in listing.files]
        self._write(f"specpair/{listing.commit}.json", json.dumps(kept))

    def keep(self, listing: Listing) -> None:
        """Store a listing as the newest one."""
        self.begin(listing)
        self._write("refs/main", listing.commit)

    def _write(self, name: str, content: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as new:
            new.write(content.encode())

    def remove(self, path: Path) -> int:
        """Remove a part, or a file by the name `path` with its content. Returns how many bytes were freed.

        A content that another name of the repository links to stays.
        """
        content = path.resolve()
        own = 0 if path.is_symlink() else path.stat().st_size
        path.unlink()
        others = (each for each in (self.folder / "snapshots").rglob("*") if each.is_symlink())
        if any(each.resolve() == content for each in others) or not content.is_file():
            return own
        freed = content.stat().st_size
        content.unlink()
        return freed

    def remove_all(self) -> int:
        """Remove the whole folder. Returns how many bytes were freed."""
        freed = sum(each.stat().st_size for each in self.folder.rglob("*") if each.is_file() and not each.is_symlink())
        shutil.rmtree(self.folder)
        return freed

    @contextmanager
    def locked(self, file: HubFile) -> Iterator[None]:
        """A context in which no other process fetches a file, huggingface_hub in other programs included."""
        self._locks.mkdir(parents=True, exist_ok=True)
        self.blob(file).parent.mkdir(parents=True, exist_ok=True)
        with open(self._locks / f"{file.blob}.lock", "ab") as held:
            with suppress(OSError):  # a file system without locks: two processes would write the same bytes
                lock(held.fileno(), wait=True)
            yield


def repositories_in(cache: Path) -> list[str]:
    """The names of the repositories with a folder in a cache. Raises OSError if it cannot be read."""
    found = []
    with suppress(FileNotFoundError):
        for each in cache.iterdir():
            with suppress(BadName):  # else it is a data set's, or another program's
                name = parse_name(each.name.removeprefix(_PREFIX).replace("--", "/", 1))
                if each.name.startswith(_PREFIX) and each.is_dir():
                    found.append(str(name))
    return sorted(found)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _is_path(path: object) -> bool:
    """Whether the text is a relative path of a file, on every system."""
    if not isinstance(path, str) or _OBEYED.search(path) or "\\" in path or PureWindowsPath(path).drive:
        return False
    if len(path.encode()) > _LONGEST_PATH:
        return False
    return all(part.strip(".") and len(part.encode()) <= _LONGEST_PART for part in path.split("/"))
