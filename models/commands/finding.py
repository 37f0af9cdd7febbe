"""Finds the models that a command names: files and folders, models in the cache, and models on the hub."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from models.commands.description import ModelDescription, describe_folder, describe_gguf
from models.errors import BadHead, BadName, ModelNotFound, NoMatch
from models.hub.cache import HubFile, Listing
from models.hub.download import chosen, find_head, find_model, instead
from models.hub.gguf_check import check_model, read_parts
from models.hub.gguf_head import fetch_head
from models.hub.gguf_layers import draft_head
from models.hub.names import (
    HEADS,
    ModelName,
    choose_folder,
    choose_head,
    head_kind,
    models_among,
    parse_name,
    parts_of,
    tag_of,
    with_its_parts,
)
from models.hub.repository import Hub
from models.safetensors_file import read_tensor_list, tensors_in
from specpair.engines.load_options import FreeMemory
from specpair.numbers import sized

_WEIGHTS = ".safetensors"
_LARGEST = 256 << 20  # bytes of a file beside the weights
USUAL_CONTEXT = 4096  # tokens, at most, that engines take without being told
_PLENTY = 4  # a model with a text of the usual context takes at most as many times the bytes of its files


class CachedModel(NamedTuple):
    """A model in the cache. `paths`: its files, the first part first, or config.json. `size`: bytes of all.
    `head_paths`: the files of its head, if that has files of its own."""

    name: ModelName
    paths: tuple[Path, ...]
    size: int
    head_paths: tuple[Path, ...] = ()

    @property
    def path(self) -> Path:
        """The file or folder to load."""
        return self.paths[0].parent if self.is_folder else self.paths[0]

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of safetensors."""
        return self.paths[0].name == "config.json"

    def described(self) -> ModelDescription:
        """Raises BadHead."""
        model = _at(self.path, str(self.name))
        return _with_head_at(model, self.head_paths[0]) if self.head_paths else model


class PartialModel(NamedTuple):
    """A model partly in the cache. `here`, `size`: bytes in the cache, and of the whole model."""

    name: ModelName
    paths: tuple[Path, ...]  # what is there of its files
    here: int
    size: int


def begun(hub: Hub) -> Iterator[PartialModel]:
    """The models whose download began and did not finish."""
    for repository in hub.repositories():
        cached = hub.cached(repository)
        for listing in cached.listings():
            for tag, files in _models(listing):
                if tag and any(cached.has(listing, file) or cached.part(file).exists() for file in files):
                    heads = (choose_head(ModelName(repository, tag), listing.paths, kind) for kind in HEADS)
                    files += (each for head in heads for each in listing.chosen(head) if cached.part(each).exists())
                parts = [part for file in files if (part := cached.part(file)).exists()]
                if parts:
                    whole = [file for file in files if cached.has(listing, file)]
                    paths = (*parts, *(cached.path(listing, file) for file in whole))
                    sizes = [path.stat().st_size for path in paths]
                    name = ModelName(repository, tag)
                    yield PartialModel(name, paths, sum(sizes), sum(file.size for file in files))


def in_cache(hub: Hub) -> Iterator[CachedModel]:
    """The complete models in the cache, by repository."""
    for repository in hub.repositories():
        cached = hub.cached(repository)
        known = cached.newest()
        if known is None:
            continue
        here = replace(known, files=tuple(file for file in known.files if cached.has(known, file)), complete=False)
        for tag, files in _models(here):
            # Of a folder that another tool has fetched in part, it is not known what is missing: not the tokenizer.
            if tag or known.complete or "tokenizer.json" in here.paths:
                name = ModelName(repository, tag)
                paths = tuple(cached.path(here, file) for file in files)
                head = _cached_head(name, hub) if tag else None
                of_head = () if head is None else tuple(head.with_name(part) for part in parts_of(head.name))
                yield CachedModel(name, paths, sum(file.size for file in files), of_head)


def _models(listing: Listing) -> Iterator[tuple[str | None, list[HubFile]]]:
    """Tags and files of the complete models in a listing; the folder of safetensors has no tag."""
    for first in models_among(listing.paths):
        with suppress(NoMatch):  # a part is missing
            yield tag_of(first), listing.chosen(with_its_parts(first, listing.paths))
    with suppress(NoMatch):
        folder = choose_folder(ModelName(listing.repository), listing.paths)
        if folder:
            yield None, listing.chosen(folder)


def _head_files(name: ModelName, listing: Listing) -> list[HubFile]:
    """The files of a model's head; empty: it has no head in a file of its own."""
    heads = (choose_head(name, listing.paths, kind) for kind in HEADS)
    return listing.chosen(next(filter(None, heads), []))


def _cached_head(name: ModelName, hub: Hub) -> Path | None:
    """The file in the cache, or its first part, of a model's head, of the usual kind if there are several."""
    return next(filter(None, (find_head(name, hub, kind) for kind in HEADS)), None)


def described(text: str, hub: Hub) -> ModelDescription:
    """The model that a user names: a GGUF file, a folder of safetensors, or a model on the hub. Reads only the heads of
    weights.

    Raises HubError, which says what `text` may be.
    """
    path = Path(text).expanduser()
    if path.is_file() or path.is_dir():
        return _at(path, path.stem if path.is_file() else path.resolve().name)
    try:
        name = parse_name(text)
    except BadName as error:
        raise ModelNotFound(f"{text}: no such file or folder; {error}") from None
    found = find_model(name, hub) or find_model(name, hub, folder=True)
    if found is not None:
        model = _at(found, str(name if found.is_dir() else ModelName(name.repository, tag_of(found.name))))
        known = None if found.is_dir() else hub.cached(name.repository).newest()
        if known is None or model.head is not None:
            return model
        head = _cached_head(name, hub)
        if head is not None:
            return _with_head_at(model, head)
        missing = _head_files(name, known)
        return replace(model, head_file=missing[0].path) if missing else model
    listing = hub.listing(name.repository)
    files = chosen(name, listing, None)
    heads = [] if files[0].path == "config.json" else _head_files(name, listing)
    return on_hub(name, hub, listing, files + heads)


def on_hub(name: ModelName, hub: Hub, listing: Listing, files: Sequence[HubFile]) -> ModelDescription:
    """Describes a model on the hub, and its head if that is among the files, by the heads of the weights. Raises
    HubError."""
    if files[0].path != "config.json":
        own = [file for file in files if head_kind(file.path)]
        heads = [fetch_head(hub, listing, file) for file in files if file not in own]
        check_model(files[0].path, heads)
        model = describe_gguf(str(name), heads)
        if model.head is not None or not own:
            return model
        of_head = [fetch_head(hub, listing, file) for file in own]
        check_model(own[0].path, of_head, lone_head=True)
        return model.with_head(draft_head(of_head), own[0].path)
    tensors = []
    with TemporaryDirectory(prefix="specpair-") as folder:
        for file in files:
            if file.path.endswith(_WEIGHTS):
                tensors += read_tensor_list(partial(hub.read, listing, file), file.path)
                continue
            if file.size > _LARGEST:
                raise BadHead(f"{file.path} of {name} has {file.size} bytes, which is too many for this kind of file")
            path = Path(folder, file.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(hub.read(listing, file, 0, file.size))
        return describe_folder(str(name), Path(folder), tensors)


def shortage(
    name: ModelName,
    hub: Hub,
    room: FreeMemory,
    listing: Listing,
    files: Sequence[HubFile],
    *,
    context: int | None = None,
    slots: int = 1,
    head: bool = False,
) -> str | None:
    """Why a model of the hub does not fit into this machine's memory, with the tags that fit.

    The words go on with further advice. None: the model fits, or its head cannot be read, so that it is for the engine
    to tell. Heads are asked for only where it is close.

    `context`: tokens of each text; None: the engine's usual ones.
    `head`: whether the model drafts with its head, which is in its file or among `files`.

    `models pull` only warns of it: more memory may be free later, or the folder be another machine's. Where a model is
    fetched to be loaded at once, it is an error. A model that was pulled by name is loaded whatever the memory.

    Raises HubError if the hub cannot be asked.
    """
    usual = (context or USUAL_CONTEXT) * slots <= USUAL_CONTEXT
    if usual and _PLENTY * sum(file.size for file in files) <= room.free:
        return None
    try:
        model = on_hub(name, hub, listing, files)
    except BadHead:
        return None
    context = context or min(model.context or USUAL_CONTEXT, USUAL_CONTEXT)
    weights = model.weight_bytes if room.weight is None else model.parameters * room.weight
    drafts = model.head if head else None
    if drafts is not None and drafts.alone:
        weights += drafts.size
    cache = slots * context * (model.kv_numbers + (drafts.kv_numbers if drafts else 0)) * room.cached
    if weights + cache <= room.free:
        return None
    others = instead(listing, room.free - cache) if room.weight is None else ""
    if weights < room.free:
        others += "lower the context; "
    return (
        f"{name}: {sized(weights)} of weights and {sized(cache)} of KV cache for {context:,} tokens are more than the "
        f"{sized(room.free)} of memory that are free: {others}"
    )


def _at(path: Path, name: str) -> ModelDescription:
    """The model in a folder, or in a file with the other parts of a split one. Raises BadHead."""
    if path.is_file():
        first = path.with_name(parts_of(path.name)[0])
        heads = read_parts(first)
        check_model(str(first), heads, lone_head=True)
        return describe_gguf(name, heads)
    there = [*path.glob("config.json"), *sorted(path.glob(f"*{_WEIGHTS}"))]
    files = choose_folder(ModelName("of/folder"), [each.name for each in there])
    if not files:
        raise BadHead(f"{path} is no model folder: it has no config.json, or no weights in safetensors")
    return describe_folder(name, path, [each for file in files[1:] for each in tensors_in(path / file)])


def _with_head_at(model: ModelDescription, path: Path) -> ModelDescription:
    """The model with the head in the file `path`, unless the model's own file has one. Raises BadHead."""
    if model.head is not None:
        return model
    heads = read_parts(path)
    check_model(str(path), heads, lone_head=True)
    return model.with_head(draft_head(heads), path.name)
