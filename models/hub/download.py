"""Fetches a model by name into the shared cache, continues after an interruption, and checks each file's hash."""

import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from models.errors import Damaged, DiskFull, HubError, HubRateLimited, HubUnreachable, NoMatch
from models.hub.cache import HubFile, Listing, RepositoryCache
from models.hub.names import (
    HEADS,
    USUAL,
    ModelName,
    choose,
    choose_folder,
    choose_head,
    models_among,
    tag_of,
    with_its_parts,
)
from models.hub.repository import Hub
from specpair.numbers import sized

_log = logging.getLogger("models.hub")
_PIECE = 1 << 20  # bytes read at a time
_TOLD = 3  # models that an error names, at most
_UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS}  # errors where a cache is another user's, or read-only
Progress = Callable[[int, int], None]  # is told the bytes that are here and those of the whole model
Check = Callable[[Listing, list[HubFile]], None]  # is told the files of a model before the first is fetched, may raise


def find_model(name: ModelName, hub: Hub, *, folder: bool | None = False, head: str | None = None) -> Path | None:
    """The path of a complete model in the cache, as `fetch_model` returns it; None: it is incomplete.

    The hub is not asked.
    """
    cached = hub.cached(name.repository)
    known = cached.newest()
    if known is None or (folder and not known.complete):
        return None
    # Without the hub's own listing, a better match than those here may be on the hub, and so may a head.
    if head and not known.complete and not choose_head(name, known.paths, head):
        return None
    wanted = name if known.complete or name.tag else ModelName(name.repository, USUAL[0])
    return _here(wanted, cached, known, folder, head)


def find_head(name: ModelName, hub: Hub, kind: str = HEADS[0]) -> Path | None:
    """The file in the cache, or its first part, of the head that drafts for a model; see `choose_head`.

    None: the cache has no such file. The model's own file may have a head all the same (`gguf_layers.draft_head`).
    The hub is not asked.
    """
    cached = hub.cached(name.repository)
    known = cached.newest()
    files = [] if known is None else known.chosen(choose_head(name, known.paths, kind))
    if known is None or not files or not all(cached.has(known, file) for file in files):
        return None
    return cached.path(known, files[0])


def fetch_model(
    name: ModelName,
    hub: Hub,
    progress: Progress = lambda _done, _total: None,
    *,
    check: Check = lambda _listing, _files: None,
    refresh: bool = False,
    folder: bool | None = False,
    head: str | None = None,
) -> Path:
    """The file of a model, or its first part. Fetches files that the cache lacks.

    `progress`: is told of bytes, now and then.
    `check`: is asked if anything is to be fetched and the disk has room for it.
    `refresh`: asks the hub for a newer version of what is in the cache.
    `folder`: prefers safetensors, if the repository has them and the name no tag; the path is that of their folder.
        None: takes them if the repository has no GGUF file of a model.
    `head`: the kind of head that is fetched along with the model, if the repository has one in a file of its own;
        `find_head` returns the path of that file.

    Raises HubError, and what `check` raises.
    """
    cached = hub.cached(name.repository)
    try:
        if not refresh and (found := find_model(name, hub, folder=folder, head=head)) is not None:
            return found
        try:
            listing = hub.listing(name.repository)
        except (HubUnreachable, HubRateLimited) as error:
            return _without(f"the hub cannot be asked for {name}", error, name, cached, folder)
        files = chosen(name, listing, folder, head)
        missing = [file for file in files if not cached.has(listing, file)]
        if missing:
            check_disk(missing, listing, cached)
            check(listing, files)
            try:
                cached.begin(listing)
            except OSError as error:
                if error.errno not in _UNWRITABLE:
                    raise
                return _without(f"{name} cannot be fetched into the cache ({error})", error, name, cached, folder)
        _fetch(files, missing, listing, cached, hub, progress)
    except OSError as error:
        raise HubError(
            f"{name}: the cache cannot be used: {error}; set HF_HUB_CACHE to a folder that you can write to"
        ) from error
    return _path(files, listing, cached)


def _without(
    reason: str, error: HubError | OSError, name: ModelName, cached: RepositoryCache, folder: bool | None
) -> Path:
    """The cached files of a model that cannot be fetched. Raises `error` if there are none."""
    known = cached.newest()
    found = None if known is None else _here(name, cached, known, folder, None)
    if found is None:
        raise error
    _log.warning("%s: using %s from the cache", reason, found.name)
    return found


def chosen(name: ModelName, listing: Listing, folder: bool | None, head: str | None = None) -> list[HubFile]:
    """The files of a model, the one to load first; see `fetch_model` for `folder` and `head`. Raises NoMatch."""
    takes = folder or (folder is None and not models_among(listing.paths))
    of_folder = choose_folder(name, listing.paths) if takes else []
    if of_folder:
        return listing.chosen(of_folder)
    return listing.chosen(choose(name, listing.paths) + (choose_head(name, listing.paths, head) if head else []))


def _path(files: list[HubFile], listing: Listing, cached: RepositoryCache) -> Path:
    first = cached.path(listing, files[0])
    return first.parent if first.name == "config.json" else first


def _here(
    name: ModelName, cached: RepositoryCache, known: Listing, folder: bool | None, head: str | None
) -> Path | None:
    try:
        files = chosen(name, known, folder, head)
    except NoMatch:
        return None
    return _path(files, known, cached) if all(cached.has(known, file) for file in files) else None


def _fetch(
    files: list[HubFile],
    missing: list[HubFile],
    listing: Listing,
    cached: RepositoryCache,
    hub: Hub,
    progress: Progress,
) -> None:
    total = sum(file.size for file in files)
    done = total - sum(file.size for file in missing)
    for file in missing:

        def report(here: int, before: int = done) -> None:
            progress(before + here, total)

        with cached.locked(file):
            if not cached.has(listing, file):  # else another process has fetched it meanwhile
                _File(file, listing, cached, hub, report).fetch()
        done += file.size
    progress(total, total)
    with suppress(OSError):  # another user's cache, or a full disk: the hub is asked again the next time
        cached.keep(listing)  # here, so that what an update replaces can be used until it is whole


@dataclass(frozen=True)
class _File:
    """The download of a file, by the process that holds its lock. `progress`: gets the bytes so far."""

    file: HubFile
    listing: Listing
    cached: RepositoryCache
    hub: Hub
    progress: Callable[[int], None]

    def fetch(self) -> None:
        """Fetch the rest of the file, and name it. Fetches a damaged file once more. Raises HubError."""
        part, right = self.cached.part(self.file), self.file.blob
        for last in (False, True):
            try:
                got = self._grown(part)
            except HubError:
                if not part.stat().st_size:
                    part.unlink()  # nothing is begun
                raise
            size = part.stat().st_size
            if got == right and size == self.file.size:
                os.replace(part, self.cached.blob(self.file))
                return self.cached.name(self.listing, self.file)
            part.unlink()
            wrong = (
                f"{self._what} came damaged: it has {size} bytes and the hash {got}, and the hub lists "
                f"{self.file.size} and {right}"
            )
            if last:
                raise Damaged(f"{wrong}; twice, so try again later, or tell who keeps the repository")
            _log.warning("%s; fetching it again", wrong)

    def _grown(self, part: Path) -> str:
        """Fetch the rest of a part. Returns the file's hash. Tries again as long as new bytes come."""
        if not part.exists() or part.stat().st_size > self.file.size:
            part.write_bytes(b"")
        with open(part, "r+b") as grown:
            hashed = self.file.hashing()
            while piece := grown.read(_PIECE):
                hashed.update(piece)
            patience = self.hub.patience()
            while (begin := grown.tell()) < self.file.size:
                try:
                    with self.hub.ranges(self.listing, self.file, begin, self.file.size) as (at, pieces):
                        if at != begin:  # the hub sends no ranges
                            hashed = self.file.hashing()
                            grown.seek(0)
                            grown.truncate()
                        self._append(grown, hashed, pieces)
                        if grown.tell() <= begin:
                            raise HubUnreachable(f"{self._what}: the hub ends before the file does")
                except (HubUnreachable, HubRateLimited) as error:
                    if grown.tell() > begin:
                        patience = self.hub.patience()
                    patience.after(error)
            os.fsync(grown.fileno())
        found: str = hashed.hexdigest()
        return found

    def _append(self, grown: BinaryIO, hashed: Any, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            grown.write(piece)
            grown.flush()  # so that it is kept if the process is killed
            hashed.update(piece)
            self.progress(grown.tell())
            if grown.tell() > self.file.size:
                return

    @property
    def _what(self) -> str:
        return f"{self.listing.repository}/{self.file.path}"


def check_disk(missing: Sequence[HubFile], listing: Listing, cached: RepositoryCache) -> None:
    """Raises DiskFull if the rest of the files does not fit on the disk."""
    begun = sum(min(part.stat().st_size, file.size) for file in missing if (part := cached.part(file)).exists())
    needed = sum(file.size for file in missing) - begun
    there = next(folder for folder in (cached.folder, *cached.folder.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise DiskFull(
            f"{listing.repository}: {sized(needed)} are to be fetched, and {there} has {sized(free)} of room: "
            f"{instead(listing, free)}free {sized(needed - free)}, or set HF_HOME to a folder on another disk",
            needed,
            free,
        )


def instead(listing: Listing, most: float) -> str:
    """Advice that names a repository's models of at most `most` bytes, the largest first.

    Empty: none has, or they have no tags to choose by.
    """
    sizes: dict[str, int] = {}
    for first in models_among(listing.paths):
        with suppress(NoMatch):  # a part is missing
            parts = listing.chosen(with_its_parts(first, listing.paths))
            sizes.setdefault(tag_of(first), sum(file.size for file in parts))  # a tag means the first that has it
    fitting = sorted((tag for tag in sizes if sizes[tag] <= most), key=lambda tag: -sizes[tag])[:_TOLD]
    if not fitting:
        return ""
    told = " and ".join(f"{tag} ({sized(sizes[tag])})" for tag in fitting)
    return f"{told} would fit: write {listing.repository}:{fitting[0]}; "
