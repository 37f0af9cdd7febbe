"""Imports modules of the AWS Neuron SDK, with errors that name the install command and detect placeholder packages.

AWS publishes the SDK on its own package index. The public index has placeholders of the same names. They install
without a warning and raise an ImportError on import, so that a forgotten index is noticed late or never: the compiler's
placeholder cannot even be imported, because its folder has a hyphen in its name.
"""

import os
import sys
from collections.abc import MutableMapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final

from specpair.engines.errors import ModelLoadError

REQUIREMENTS: Final = "requirements/neuron.txt"  # trn2 and trn3, through torch
LEGACY_REQUIREMENTS: Final = "requirements/neuron-legacy.txt"  # trn1 and inf2, through transformers-neuronx

_COMPILER: Final = "neuronx-cc"
_DISTRIBUTIONS: Final = ("transformers-neuronx", "torch-neuronx", "neuronx-cc", "libneuronxla", "nki")
_MARK: Final = "WRONG PACKAGE."  # the beginning of a placeholder's description and of its ImportError


def import_neuron(module: str, requirements: str) -> Any:
    """Import `module`, which `requirements` installs. Raises ModelLoadError with the install command."""
    refuse_placeholders(requirements)
    find_compiler()
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module:
            raise ModelLoadError(f"{module} is not installed: {_command(requirements)}") from None
        raise ModelLoadError(f"{module} needs {error.name}, which is missing: {_command(requirements)}") from error
    except (ImportError, OSError, RuntimeError) as error:  # the runtime's libraries are loaded, too
        if _MARK in str(error):  # a placeholder copied without its metadata
            raise ModelLoadError(_placeholder(module, requirements)) from None
        missing = ": install the package aws-neuronx-runtime-lib" if "libnrt" in str(error) else ""
        raise ModelLoadError(f"{module} is installed but cannot be imported: {error}{missing}") from error


def find_compiler(environment: MutableMapping[str, str] = os.environ, python: str = sys.executable) -> None:
    """Put the compiler of this Python's environment first on PATH, because the libraries start it by its name.

    A program that is started as .venv/bin/uvicorn, or by systemd, would not find it, or find that of another
    environment.
    """
    folder = Path(python).parent
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    if (folder / _COMPILER).exists() and folders[0] != str(folder):
        environment["PATH"] = os.pathsep.join([str(folder), *folders])


def refuse_placeholders(requirements: str) -> None:
    """Raises ModelLoadError if any SDK package of this environment is the public index's placeholder."""
    found = [f"{name} {version}" for name in _DISTRIBUTIONS if (version := _placeholder_version(name)) is not None]
    if found:
        raise ModelLoadError(_placeholder(", ".join(found), requirements))


def _placeholder_version(name: str) -> str | None:
    """The version of the installed package `name` if it is a placeholder; else None."""
    try:
        described = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    return described["Version"] if _MARK in (described["Description"] or "") else None


def _placeholder(what: str, requirements: str) -> str:
    return f"{what}: an empty placeholder from the public package index, not the Neuron SDK: {_command(requirements)}"


def _command(requirements: str) -> str:
    return f"run `pip install -r {requirements}`, which names AWS's own package index"
