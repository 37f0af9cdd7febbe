"""The compiled programs of a model, kept in a folder: a later start with the same settings loads them.

Two layers keep programs. The compiler's own cache knows each program and survives an interrupted compilation. The
library's saved artefacts are all programs of one model; with these, the compiler is not asked at all.
"""

import hashlib
import json
import logging
import os
import secrets
import shutil
from collections.abc import MutableMapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

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
        self.path = None if folder is None else folder / f"{model_name}-{digest}"

    @property
    def complete(self) -> bool:
        """Whether the programs were saved."""
        return self.path is not None and self.path.is_dir()

    def discard(self, reason: str) -> None:
        """Delete saved programs that do not fit."""
        assert self.path is not None
        _log.warning("the programs in %s do not fit and are compiled again: %s", self.path, reason)
        shutil.rmtree(self.path)

    def save(self, model: Any) -> None:
        """Save the programs of the library's `model`, unless they are there. A failure is logged: the model runs all
        the same."""
        if self.path is None or self.complete:
            return
        try:
            beside = self.path.with_name(f"{self.path.name}.{secrets.token_hex(4)}")
            beside.mkdir(parents=True)
            try:
                model.save(str(beside))
                for file in filter(Path.is_file, beside.rglob("*")):
                    _write_through(file)
                beside.rename(self.path)  # so that half of the programs never pass for all
            except BaseException:
                shutil.rmtree(beside)
                raise
        except (OSError, AssertionError) as error:
            _log.warning("the compiled programs could not be kept in %s: %s", self.path, first_line(error))


def _write_through(file: Path) -> None:
    """Wait until the disk has `file`: a machine that ends soon may leave an empty one behind else."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _version(name: str) -> str | None:
    """The version of the installed package `name`; None if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
