"""The setting `compile_store`: a folder by which the programs that one machine has compiled come to others.

It may be a bucket of S3, mounted by Mountpoint. Compilers need more of a folder than that one allows, so they work in
`compile_cache`, on a disk of the machine.
"""

import logging

from backends.compilation import Published, folder_of
from specpair.engines.errors import ModelLoadError
from verifier_server.settings import Settings

_NAME = "programs"
_log = logging.getLogger("specpair.compile")


def fetch_programs(settings: Settings) -> None:
    """Copy the programs that are in `compile_store` to `compile_cache`, but for those that are there. Raises
    ModelLoadError."""
    store, cache = settings.compile_store, folder_of(settings.compile_cache)
    if store is None or cache is None:
        return
    try:
        if Published(store, _NAME).path is None:
            _log.warning("compile_store %s has no programs: they are compiled here; see `verifier compile`", store)
            return
        _log.info("%d files of programs copied from %s to %s", Published(store, _NAME).fetch(cache), store, cache)
    except OSError as error:
        raise ModelLoadError(f"compile_store {store}: cannot be read: {error.strerror}", "compile_store") from error


def publish_programs(settings: Settings) -> None:
    """Put copies of what is in `compile_cache` into `compile_store`, in place of what was there. Raises
    ModelLoadError."""
    store, cache = settings.compile_store, folder_of(settings.compile_cache)
    if store is None or cache is None:
        return
    try:
        Published(store, _NAME).publish(cache)
    except OSError as error:
        raise ModelLoadError(
            f"compile_store {store}: cannot be written to: {error.strerror}", "compile_store"
        ) from error
    _log.info("the programs are in %s, too", store)
