"""Finds the models that a command names: files and folders on this machine, models in the cache, those on the hub."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, NamedTuple

from models.commands.described import Described
from models.commands.folder_model import FolderModel
from models.commands.gguf_model import GgufModel
from models.hub.cache import HubFile, Listing, RepositoryCache
from models.hub.choice import choose_folder, models_among, parts_of, tag_of, with_its_parts
from models.hub.download import chosen, find_model
from models.hub.errors import BadHead, BadName, NoMatch, NotFound
from models.hub.gguf_check import check_model, read_parts
from models.hub.gguf_head import fetch_head
from models.hub.names import ModelName, parse_name
from models.hub.repository import Hub
from models.hub.safetensors_head import read_tensors

_WEIGHTS = ".safetensors"
_LARGEST = 256 << 20  # bytes of a file beside the weights


class Cached(NamedTuple):
    """A model in the cache. `paths`: its files, the first part first, or config.json. `size`: bytes of all."""

    name: ModelName
    paths: tuple[Path, ...]
    size: int

    @property
    def path(self) -> Path:
        """The file or folder to load."""
        return self.paths[0].parent if self.is_folder else self.paths[0]

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of safetensors."""
        return self.paths[0].name == "config.json"

    def described(self) -> Described:
        """Raises BadHead."""
        return _of_folder(str(self.name), self.path) if self.is_folder else _of_file(str(self.name), self.path)


class Begun(NamedTuple):
    """A model of which a part is in the cache. `here`, `size`: bytes that are there, and of the whole model."""

    name: ModelName
    paths: tuple[Path, ...]  # what is there of its files
    here: int
    size: int


def begun(hub: Hub) -> Iterator[Begun]:
    """The models that were begun to be fetched, and are not whole."""
    for repository in hub.repositories():
        cached = hub.cached(repository)
        for listing in cached.listings():
            for tag, files in _models(listing):
                parts = [part for file in files if (part := cached.part(file)).exists()]
                if parts:
                    whole = [file for file in files if cached.has(listing, file)]
                    paths = (*parts, *(cached.path(listing, file) for file in whole))
                    sizes = [path.stat().st_size for path in paths]
                    name = ModelName(repository, tag)
                    yield Begun(name, paths, sum(sizes), sum(file.size for file in files))


def in_cache(hub: Hub) -> Iterator[Cached]:
    """The models that are in the cache whole, by repository."""
    for repository in hub.repositories():
        cached = hub.cached(repository)
        known = cached.known()
        if known is not None:
            yield from _whole(cached, known)


def _whole(cached: RepositoryCache, known: Listing) -> Iterator[Cached]:
    """The models of a repository that are in the cache whole."""
    here = Listing(
        known.repository, known.commit, tuple(file for file in known.files if cached.has(known, file)), complete=False
    )

    for tag, files in _models(here):
        # Of a folder that another tool has fetched in part, it is not known what is missing: not the tokenizer.
        if tag or known.complete or "tokenizer.json" in here.paths:
            paths = tuple(cached.path(here, file) for file in files)
            yield Cached(ModelName(known.repository, tag), paths, sum(file.size for file in files))


def _models(listing: Listing) -> Iterator[tuple[str | None, list[HubFile]]]:
    """Tags and files of the models that a listing has all files of; the folder of safetensors has no tag."""
    for first in models_among(listing.paths):
        with suppress(NoMatch):  # a part is missing
            yield tag_of(first), listing.chosen(with_its_parts(first, listing.paths))
    with suppress(NoMatch):
        folder = choose_folder(ModelName(listing.repository), listing.paths)
        if folder:
            yield None, listing.chosen(folder)


def described(text: str, hub: Hub) -> Described:
    """The model that a user names: a GGUF file, a folder of safetensors, or a model on the hub. Of weights, only the
    heads are read.

    Raises HubError, which says what `text` may be.
    """
    path = Path(text).expanduser()
    if path.is_file() or path.is_dir():
        return _at(path, path.stem if path.is_file() else path.resolve().name)
    try:
        name = parse_name(text)
    except BadName as error:
        raise NotFound(f"{text}: no such file or folder; {error}") from None
    found = find_model(name, hub) or find_model(name, hub, folder=True)
    if found is not None:
        return _at(found, str(name if found.is_dir() else ModelName(name.repository, tag_of(found.name))))
    listing = hub.listing(name.repository)
    return on_hub(name, hub, listing, chosen(name, listing, None))


def on_hub(name: ModelName, hub: Hub, listing: Listing, files: Sequence[HubFile]) -> Described:
    """A model whose files are on the hub, by the heads of its weights. Raises HubError."""
    if files[0].path != "config.json":
        heads = [fetch_head(hub, listing, file) for file in files]
        check_model(files[0].path, heads)
        return GgufModel(str(name), heads)
    tensors = []
    with TemporaryDirectory(prefix="specpair-") as folder:
        for file in files:
            if file.path.endswith(_WEIGHTS):
                tensors += read_tensors(partial(hub.read, listing, file), file.path)
                continue
            if file.size > _LARGEST:
                raise BadHead(f"{file.path} of {name} has {file.size} bytes, which is too much for what it is to hold")
            path = Path(folder, file.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(hub.read(listing, file, 0, file.size))
        return FolderModel(str(name), Path(folder), tensors)


def _at(path: Path, name: str) -> Described:
    """The model in a folder, or in a file with the other parts of a split one."""
    if path.is_dir():
        return _of_folder(name, path)
    return _of_file(name, path.with_name(parts_of(path.name)[0]))


def _of_file(name: str, path: Path) -> Described:
    heads = read_parts(path)
    check_model(str(path), heads)
    return GgufModel(name, heads)


def _of_folder(name: str, folder: Path) -> Described:
    tensors = []
    there = [*folder.glob("config.json"), *sorted(folder.glob(f"*{_WEIGHTS}"))]
    files = choose_folder(ModelName("of/folder"), [each.name for each in there])
    if not files:
        raise BadHead(f"{folder} is no model folder: it has no config.json, or no weights in safetensors")
    for file in files[1:]:
        with (folder / file).open("rb") as weight:
            tensors += read_tensors(partial(_read, weight), str(folder / file))
    return FolderModel(name, folder, tensors)


def _read(file: BinaryIO, begin: int, count: int) -> bytes:
    file.seek(begin)
    return file.read(count)
