"""Finds the models that a command names: files on this machine, models in the cache, and those on the hub."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from specpair.hub.cache import Listing
from specpair.hub.choice import choose, models_among, tag_of, with_its_parts
from specpair.hub.download import find_model
from specpair.hub.errors import BadName, NoMatch, NotFound
from specpair.hub.gguf_head import fetch_head, read_head
from specpair.hub.names import ModelName, parse_name
from specpair.hub.repository import Hub
from specpair.model_commands.described import Described


class Cached(NamedTuple):
    """A model in the cache. `paths`: its files, the first part first. `size`: bytes of all."""

    name: ModelName
    paths: tuple[Path, ...]
    size: int

    @property
    def path(self) -> Path:
        """The file to load."""
        return self.paths[0]

    def described(self) -> Described:
        """Raises BadHead."""
        return Described(str(self.name), read_head(self.path), self.size)


def in_cache(hub: Hub) -> Iterator[Cached]:
    """The models that are in the cache whole, by repository."""
    for repository in hub.repositories():
        cached = hub.cached(repository)
        known = cached.known()
        if known is not None:
            here = Listing(
                repository, known.commit, tuple(file for file in known.files if cached.has(known, file)), complete=False
            )
            for first in models_among(here.paths):
                try:
                    files = here.chosen(with_its_parts(first, here.paths))
                except NoMatch:  # a part is missing
                    continue
                size = sum(file.size for file in files)
                paths = tuple(cached.path(here, file) for file in files)
                yield Cached(ModelName(repository, tag_of(first)), paths, size)


def described(text: str, hub: Hub) -> Described:
    """The model that a user names: a GGUF file, or a model on the hub, of which no more than the head is read.

    Raises HubError, which says what `text` may be.
    """
    path = Path(text).expanduser()
    if path.is_file():
        parts = with_its_parts(path.name, sorted(each.name for each in path.parent.glob("*.gguf")))
        size = sum((path.parent / part).stat().st_size for part in parts)
        return Described(path.stem, read_head(path), size)
    try:
        name = parse_name(text)
    except BadName as error:
        raise NotFound(f"{text}: no such file; {error}") from None
    found = find_model(name, hub)
    if found is not None:
        return next(each for each in in_cache(hub) if each.path == found).described()
    listing = hub.listing(name.repository)
    files = listing.chosen(choose(name, listing.paths))
    return Described(str(name), fetch_head(hub, listing, files[0]), sum(file.size for file in files))
