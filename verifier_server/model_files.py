"""Fetches the models' files by name at the start, and copies compiled programs.

The setting `compile_store` names a folder by which the programs that one machine has compiled come to others. It may be
a bucket of S3, mounted by Mountpoint. Compilers need more of a folder than that one allows, so they work in
`compile_cache`, on a disk of the machine.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

from backends.compilation import Published, folder_of
from backends.llama_cpp.head_files import head_of
from backends.named_model import file_of, head_file_of
from specpair.engines.errors import ModelLoadError
from specpair.engines.load_options import HEAD, LoadOptions
from specpair.numbers import sized
from verifier_server.settings import Settings

_log = logging.getLogger("specpair.verifier")
_compile_log = logging.getLogger("specpair.compile")
_LOG_EVERY = 2.0  # seconds between two lines on a progress
_PROGRAMS = "programs"  # what is published in `compile_store`


def progress_log(line: Callable[..., str], *, at_once: bool = False) -> Callable[..., None]:
    """A function that logs a line of progress when it is called, unless it logged one just before.

    `at_once`: whether the first progress is logged; else, one after two seconds is.
    """
    logged = -inf if at_once else time.monotonic()

    def log(*progress: object) -> None:
        nonlocal logged
        if (now := time.monotonic()) - logged >= _LOG_EVERY:
            logged = now
            _log.info("%s", line(*progress))

    return log


def of_loading() -> Callable[[float], None]:
    """Logs how much of a model is loaded, 0 to 1."""
    return progress_log(lambda fraction: f"loading the model: {100 * fraction:.0f} %")


def with_files(settings: Settings, report: Callable[[float], None] = lambda _share: None) -> Settings:
    """The settings with the local files of the hub models that they name. Fetches missing files.

    `report`: is told how much of all is here, 0 to 1. What it raises ends the fetching, which goes on another time.

    Raises ModelLoadError.
    """
    target = settings.load_options()
    draft = replace(target, slots=1, device=settings.draft_device or target.device)
    named = (
        ("model", settings.hf, settings.backend, target),
        ("draft_model", settings.draft_hf, settings.draft_engine, draft),
    )
    wanted = [(setting, name, engine, options) for setting, name, engine, options in named if name is not None]
    found, kind = dict[str, Path](), settings.head_on_hub
    for at, (setting, name, engine, options) in enumerate(wanted):
        log = progress_log(partial("fetching {}: {} of {}".format, name), at_once=True)

        def progress(done: int, total: int, log: Callable[..., None] = log, at: int = at) -> None:
            log(sized(done), sized(total))
            report((at + done / max(total, 1)) / len(wanted))

        pull, head = f"verifier models pull {name}", kind if setting == "model" else None
        found[setting] = file_of(name, engine, progress, options, pull, head, required=settings.draft_head is not None)
        _log.info("%s is %s", name, found[setting])
    if kind is not None and settings.hf is not None:
        found |= _head(settings, settings.hf, kind, found["model"])
    return settings.model_copy(update=found) if found else settings


def _head(settings: Settings, name: str, kind: str, target: Path) -> dict[str, Path]:
    """The setting `draft_head`, for a head that the target's repository has in a file of its own.

    Raises ModelLoadError if the user has asked for this kind, and there is none.
    """
    file = head_file_of(name, kind)
    if file is None and settings.draft_head is None:
        return {}  # its own file may have a head
    if file is None:
        raise ModelLoadError(f"{name} has no file of the kind {kind}: leave this out, or name a file", "draft_head")
    try:
        head_of(target, LoadOptions(head=HEAD, head_file=file))
    except ModelLoadError as error:
        if settings.draft_head is not None:
            raise
        _log.warning("%s: the target has no head for drafts", error)
        return {}
    _log.info("the head of %s is %s", name, file)
    return {"draft_head": file}


def fetch_programs(settings: Settings) -> None:
    """Copy programs that `compile_cache` lacks from `compile_store`. Raises ModelLoadError."""
    store, cache = settings.compile_store, folder_of(settings.compile_cache)
    if store is None or cache is None:
        return
    try:
        if Published(store, _PROGRAMS).path is None:
            _compile_log.warning(
                "compile_store %s has no programs: they are compiled here; see `verifier compile`", store
            )
            return
        _compile_log.info(
            "%d files of programs copied from %s to %s", Published(store, _PROGRAMS).fetch(cache), store, cache
        )
    except OSError as error:
        raise ModelLoadError(f"compile_store {store}: cannot be read: {error.strerror}", "compile_store") from error


def publish_programs(settings: Settings) -> None:
    """Replace the content of `compile_store` with a copy of `compile_cache`. Raises ModelLoadError."""
    store, cache = settings.compile_store, folder_of(settings.compile_cache)
    if store is None or cache is None:
        return
    try:
        Published(store, _PROGRAMS).publish(cache)
    except OSError as error:
        raise ModelLoadError(
            f"compile_store {store}: cannot be written to: {error.strerror}", "compile_store"
        ) from error
    _compile_log.info("copied the programs to %s", store)
