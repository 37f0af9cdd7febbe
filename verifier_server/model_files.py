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

from backends.compilation import Published, folder_of
from backends.named_model import file_of
from specpair.engines.errors import ModelLoadError
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
    found = {}
    for at, (setting, name, engine, options) in enumerate(wanted):
        log = progress_log(partial("fetching {}: {} of {}".format, name), at_once=True)

        def progress(done: int, total: int, log: Callable[..., None] = log, at: int = at) -> None:
            log(sized(done), sized(total))
            report((at + done / max(total, 1)) / len(wanted))

        found[setting] = file_of(name, engine, progress, options, f"verifier models pull {name}")
        _log.info("%s is %s", name, found[setting])
    return settings.model_copy(update=found) if found else settings


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
    _compile_log.info("the programs are in %s, too", store)
