"""Finds the local file or folder of a model on the hub, for an engine to load."""

import logging
from collections.abc import Callable
from pathlib import Path

from backends.registry import room
from models.commands.finding import shortage
from models.errors import BadCatalogue, HubError, MemoryShort
from models.hub.cache import HubFile, Listing
from models.hub.catalogue import DraftChoice, choose_drafter
from models.hub.download import fetch_model, find_head, find_model
from models.hub.names import parse_name
from models.hub.repository import Hub
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import LoadOptions
from specpair.extras import MissingExtra

_log = logging.getLogger("models.hub")


def known_drafters(target: str, vocabulary: str, free: float | None = None) -> tuple[DraftChoice, dict[str, Path]]:
    """The draft models that the catalogue lists for the target, and the files of those in the cache, by name.

    `target`, `vocabulary`: its name, and the hash of its text tokens.
    `free`: bytes of memory for a draft model; None: any are listed.

    Raises ModelLoadError for a catalogue of the user's that is none.
    """
    try:
        choice = choose_drafter(target, vocabulary, free)
    except BadCatalogue as error:
        raise ModelLoadError(str(error)) from error
    if not choice.entries:
        return choice, {}
    try:
        hub = Hub()
        found = {each.name: find_model(parse_name(each.name), hub) for each in choice.entries}
        return choice, {name: path for name, path in found.items() if path is not None}
    except (HubError, MissingExtra, OSError) as error:
        _log.warning("the cache of models cannot be read: %s", error)
        return choice, {}


def file_of(
    name: str,
    engine: str,
    progress: Callable[[int, int], None],
    options: LoadOptions,
    pull: str,
    head: str | None = None,
    *,
    required: bool = False,
) -> Path:
    """The file or folder of the model `name`, fetched unless it is in the cache.

    Raises ModelLoadError, also where the model is to be fetched and this machine has too little memory for it
    (`shortage` says why).

    `engine`: what loads it: any but llama.cpp reads a folder of safetensors, where the repository has them.
    `progress`: is told the bytes that are here and those of the whole model, while it is fetched.
    `options`: how it will be loaded.
    `pull`: the command that fetches it whatever the memory.
    `head`: the kind of head that is fetched with it, if it has one in a file of its own; None: none is.
    `required`: whether the user asked for it. Else a model in the cache will do without it.
    """

    def check(listing: Listing, files: list[HubFile]) -> None:
        here = room(engine, options)
        if here is None:
            return
        slots = options.slots or 1
        short = shortage(
            parsed, hub, here, listing, files, context=options.context_length, slots=slots, head=head is not None
        )
        if short is not None:
            raise MemoryShort(f"{short}fetch it all the same with `{pull}`, and start again")

    try:
        parsed, hub = parse_name(name), Hub()
        if head is not None and not required:
            found = find_model(parsed, hub, folder=engine != "llama_cpp")
            if found is not None:  # the hub need not be asked for a head that nobody asked for
                return found
        return fetch_model(parsed, hub, progress, check=check, folder=engine != "llama_cpp", head=head)
    except (HubError, MissingExtra) as error:
        raise ModelLoadError(str(error)) from error


def head_file_of(name: str, kind: str) -> Path | None:
    """The file in the cache of a head of this kind, which `file_of` has fetched with its model; None: it has none."""
    try:
        return find_head(parse_name(name), Hub(), kind)
    except (HubError, MissingExtra) as error:
        raise ModelLoadError(str(error)) from error
