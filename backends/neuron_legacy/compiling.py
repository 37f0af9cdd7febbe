"""The compilation of a model: the folder of its programs, and transformers-neuronx's compiler processes.

A later start with the same settings loads the programs. Two layers keep them. The compiler's own cache knows each
program and survives an interrupted compilation. The library's saved artefacts are all programs of one model; with
these, the compiler is not asked at all.

The library forks processes, each of which runs the compiler, a program of its own, for one model program after the
other. Left to themselves they would go on when a server is stopped, with all that they inherit: its sockets, so that
the port stays taken, and its handlers of signals, so that they do not end when they are told to.
"""

import ctypes
import hashlib
import json
import logging
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from backends.machine import available_bytes, cores
from specpair.engines.errors import first_line

# Where the compiler keeps programs; its default is a folder in /var/tmp.
COMPILER_CACHE: Final = "NEURON_COMPILE_CACHE_URL"
_OURS: Final = "neuronx-cc"  # a folder of it that the user has not chosen
FLAGS: Final = "NEURON_CC_FLAGS"  # of the compiler, which programs depend on
# Beginnings of those flags that the compiler itself does not get, as AWS's documents say.
_OF_THE_CACHE: Final = ("--retry_failed_compilation", "--cache_dir", "--no_cache", "--log_level")
_MAKERS: Final = ("transformers-neuronx", "torch-neuronx", "neuronx-cc", "libneuronxla")  # what programs depend on
_log = logging.getLogger("specpair.compile")
# Host memory that the compiler takes for a layer of a program. A guess, on the safe side: nine programs of 32 layers at
# once are reported to exhaust 32 GiB.
_BYTES_A_LAYER: Final = 256 * 2**20
_KILLED: Final = ("[F137]", "forcibly killed")  # in the compiler's error if the system ended it, mostly for its memory

_SIGNAL_AT_PARENTS_END: Final = 1  # PR_SET_PDEATHSIG, of the system's prctl
_forks = False  # whether the processes forked now are the library's workers


def keep_in(folder: Path | None) -> None:
    """Make the compiler keep programs below `folder`, unless the user has set another folder."""
    if folder is not None:
        os.environ[COMPILER_CACHE] = os.environ.get(COMPILER_CACHE) or str(folder / _OURS)


def forget_failures(folder: Path | None) -> None:
    """Make the compiler try programs again whose compilation failed before, in the folder that `keep_in` sets.

    The compiler remembers a failure as well as a success, also one by Ctrl-C or for lack of memory, and the library
    asks it not to try again. A program that failed has a log in its folder, and no compiled file.
    """
    for log in () if folder is None else (folder / _OURS).glob("*/*/model.log"):
        if not (log.parent / "model.neff").exists():
            _log.info("retrying a compilation that failed before: %s", log.parent)
            try:
                shutil.rmtree(log.parent)
            except OSError as error:  # another process was faster, or they are another user's
                _log.warning("%s stays as it is: %s", log.parent, error.strerror)


class Artefacts:
    """The saved programs of one model with one set of settings."""

    def __init__(self, folder: Path | None, model_name: str, *settings: Any) -> None:
        """`folder`: of all models' programs; None: none. `settings`: what programs depend on besides library versions
        and compiler flags; JSON, or with a `repr`.
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
        """Delete saved programs that do not fit. Raises OSError."""
        assert self.path is not None
        _log.warning("the programs in %s do not fit and are compiled again: %s", self.path, reason)
        shutil.rmtree(self.path)

    def save(self, model: Any) -> None:
        """Save the programs of the library's `model`, unless they are there. Logs a failure: the model still runs."""
        if self.path is None or self.complete:
            return
        try:
            with TemporaryDirectory(prefix="specpair-", dir=self.path.parent) as folder:
                made = Path(folder, "programs")
                made.mkdir()
                model.save(str(made))
                made.rename(self.path)  # at once, so that others see all programs or none
        except (OSError, AssertionError) as error:
            _log.warning("the compiled programs could not be kept in %s: %s", self.path.parent, first_line(error))


def _version(name: str) -> str | None:
    """The version of the installed package `name`; None if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def workers_for(layers: int, programs: int) -> int:
    """Programs of `layers` layers to compile at a time, by this machine's cores and free memory."""
    return max(1, min(programs, cores(), available_bytes() // (layers * _BYTES_A_LAYER)))


def lacked_memory(error: BaseException) -> bool:
    """Whether a compilation failed because the system killed a worker or its compiler."""
    return isinstance(error, BrokenProcessPool) or any(mark in str(error) for mark in _KILLED)


@contextmanager
def ending_with_this_process() -> Iterator[None]:
    """A context in which processes that this thread forks end as soon as this process has ended, with all that they
    start in their process group. Only one thread at a time may be in it."""
    global _forks
    _prepare_forks()
    _forks = True
    try:
        yield
    finally:
        _forks = False


@cache
def _prepare_forks() -> None:
    os.register_at_fork(after_in_child=_in_worker)


def _in_worker() -> None:
    """Set up each forked process. Its child processes share its process group unless they set another."""
    if not _forks:
        return
    os.setpgid(0, 0)  # Ctrl-C in a terminal is for the parent
    signal.set_wakeup_fd(-1)  # else its signals would wake the parent's event loop
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    with suppress(AttributeError):  # not Linux, where alone the chips are
        ctypes.CDLL(None).prctl(_SIGNAL_AT_PARENTS_END, signal.SIGTERM)
