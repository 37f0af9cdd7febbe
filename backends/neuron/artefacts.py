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
from tempfile import mkdtemp
from typing import Any, Final

from backends.base import first_line

# Where the compiler keeps programs; its default is a folder in /var/tmp.
COMPILER_CACHE: Final = "NEURON_COMPILE_CACHE_URL"
_MAKERS: Final = ("transformers-neuronx", "torch-neuronx", "neuronx-cc", "libneuronxla")  # what programs depend on
_log = logging.getLogger("specpair.compile")


def keep_in(folder: Path | None, environment: MutableMapping[str, str] = os.environ) -> None:
    """Make the compiler keep programs below `folder`, unless the user has said where."""
    if folder is not None:
        environment[COMPILER_CACHE] = environment.get(COMPILER_CACHE) or str(folder / "neuronx-cc")


class Artefacts:
    """The saved programs of one model with one set of settings."""

    def __init__(self, folder: Path | None, model_name: str, *settings: Any) -> None:
        """`folder`: where those of all models are; None: nothing is kept. `settings`: all that programs depend on,
        beside the versions of the libraries; JSON, or with a `repr`."""
        key = json.dumps([settings, [_version(name) for name in _MAKERS]], default=repr, sort_keys=True)
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
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside = mkdtemp(prefix=self.path.name, dir=self.path.parent)
            try:
                model.save(beside)
                Path(beside).rename(self.path)  # so that half of the programs never pass for all
            except BaseException:
                shutil.rmtree(beside)
                raise
        except (OSError, AssertionError) as error:
            _log.warning("the compiled programs could not be kept in %s: %s", self.path, first_line(error))


def _version(name: str) -> str | None:
    """The version of the installed package `name`; None if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
