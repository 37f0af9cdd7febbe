"""The compiled programs of a model, kept in a folder: a later start with the same settings loads them.

Two layers keep programs. The compiler's own cache knows each program and survives an interrupted compilation. The
library's saved artefacts are all programs of one model; with these, the compiler is not asked at all.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import MutableMapping
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from backends.published import Published
from specpair.engines.errors import first_line

# Where the compiler keeps programs; its default is a folder in /var/tmp.
COMPILER_CACHE: Final = "NEURON_COMPILE_CACHE_URL"
_OURS: Final = "neuronx-cc"  # a folder of it that the user has not chosen
FLAGS: Final = "NEURON_CC_FLAGS"  # of the compiler, which programs depend on
# Beginnings of those flags that the compiler itself does not get, as AWS's documents say.
_OF_THE_CACHE: Final = ("--retry_failed_compilation", "--cache_dir", "--no_cache", "--log_level")
_MAKERS: Final = ("transformers-neuronx", "torch-neuronx", "neuronx-cc", "libneuronxla")  # what programs depend on
_log = logging.getLogger("specpair.compile")


def keep_in(folder: Path | None, environment: MutableMapping[str, str] = os.environ) -> None:
    """Make the compiler keep programs below `folder`, unless the user has said where."""
    if folder is not None:
        environment[COMPILER_CACHE] = environment.get(COMPILER_CACHE) or str(folder / _OURS)


def forget_failures(folder: Path | None) -> None:
    """Make the compiler try programs again whose compilation failed before, in the folder that `keep_in` sets.

    The compiler remembers a failure as well as a success, also one by Ctrl-C or for lack of memory, and the library
    asks it not to try again. A program that failed has a log in its folder, and no compiled file.
    """
    for log in () if folder is None else (folder / _OURS).glob("*/*/model.log"):
        if not (log.parent / "model.neff").exists():
            _log.info("its compilation failed before, and is tried again: %s", log.parent)
            try:
                shutil.rmtree(log.parent)
            except OSError as error:  # another process was faster, or they are another user's
                _log.warning("%s stays as it is: %s", log.parent, error.strerror)


class Artefacts:
    """The saved programs of one model with one set of settings."""

    def __init__(self, folder: Path | None, model_name: str, *settings: Any) -> None:
        """`folder`: where those of all models are; None: nothing is kept.
        `settings`: all that programs depend on, beside the versions of the libraries and the compiler's flags; JSON, or
            with a `repr`.
        """
        flags = [flag for flag in os.environ.get(FLAGS, "").split() if not flag.startswith(_OF_THE_CACHE)]
        key = json.dumps([settings, [*map(_version, _MAKERS), flags]], default=repr, sort_keys=True)
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        self._published = None if folder is None else Published(folder, f"{model_name}-{digest}")

    @property
    def path(self) -> Path | None:
        """The folder with the saved programs; None: there are none."""
        return None if self._published is None else self._published.path

    @property
    def complete(self) -> bool:
        """Whether the programs were saved."""
        return self.path is not None

    def discard(self, reason: str) -> None:
        """Delete saved programs that do not fit."""
        assert self._published is not None
        _log.warning("the programs in %s do not fit and are compiled again: %s", self.path, reason)
        self._published.discard()

    def save(self, model: Any) -> None:
        """Save the programs of the library's `model`, unless they are there. A failure is logged: the model runs all
        the same."""
        if self._published is None or self.complete:
            return
        try:
            with TemporaryDirectory(prefix="specpair-") as folder:  # where a library can write files as it likes
                model.save(folder)
                self._published.publish(Path(folder))
        except (OSError, AssertionError) as error:
            kept = self._published.marker.parent
            _log.warning("the compiled programs could not be kept in %s: %s", kept, first_line(error))


def _version(name: str) -> str | None:
    """The version of the installed package `name`; None if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
