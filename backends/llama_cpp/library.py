"""Imports the llama.cpp shared library with safe defaults: little logging, little spinning, no debugger on abort."""

import ctypes
import logging
import os
from collections import deque
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

# All variables must be set before the library is loaded. OpenMP threads that spin at barriers starve a second process
# on the same machine (a token took 90 times as long). Threads that sleep at once are woken thousands of times a pass,
# which then takes two to ten times as long. So GNU's threads spin for some microseconds and then sleep.
# Every thread that runs passes has a team of its own, and GNU's library lets teams with
# more threads than there are cores spin for less: not at all under the policy `passive`. So the policy is `active`,
# which means the same with a spin count. LLVM's library reads its own variables first: its threads sleep at once.
# Without GGML_NO_BACKTRACE an abort starts a debugger.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "active"
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    os.environ.setdefault("KMP_LIBRARY", "throughput")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
os.environ.setdefault("GGML_NO_BACKTRACE", "1")

import llama_cpp as lib  # noqa: E402 - after the environment is set
from llama_cpp import llama_cpp as _bindings  # noqa: E402

__all__ = ["floats", "ggml", "lib", "take_warnings"]

_log = logging.getLogger("specpair.llama_cpp")
_WARN, _ERROR, _CONT = 3, 4, 5
LEVELS = {_WARN: logging.DEBUG, _ERROR: logging.WARNING}  # at which the library's messages are logged; others are not
_recent: deque[str] = deque(maxlen=8)  # the library's last warnings and errors
_last_level = 0


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _keep(level: int, text: bytes, _user_data: ctypes.c_void_p) -> None:
    """Log and keep a message of the library if it is a warning, an error or the continuation of one."""
    global _last_level
    if level != _CONT:
        _last_level = level
    if _last_level in LEVELS:
        line = text.decode(errors="replace").rstrip()
        if line:
            _recent.append(line)
            _log.log(LEVELS[_last_level], "%s", line)


lib.llama_log_set(_keep, ctypes.c_void_p(0))  # replaces llama_cpp's callback, which prints everything
ggml = _bindings._lib  # with the copy of ggml that llama.cpp uses: a wheel can have several
if not ggml.ggml_backend_reg_count():
    # Built with GGML_BACKEND_DL: a file for each kind of processor beside the library. The best for this one is loaded.
    ggml.ggml_backend_load_all_from_path(str(_bindings._base_path).encode())


def take_warnings() -> str:
    """Return and forget the library's last warnings, at most 8: they are its only explanation of a return code."""
    warnings = "; ".join(_recent)
    _recent.clear()
    return warnings or "the library gave no reason"


def floats(pointer: Any, *shape: int) -> NDArray[np.float32]:
    """The library's memory at a `float *` as an array of this shape, until the library uses it again.

    `np.ctypeslib.as_array` would leave a cycle of objects to the garbage collector at each call.
    """
    memory = (ctypes.c_float * prod(shape)).from_address(ctypes.addressof(pointer.contents))
    return np.frombuffer(memoryview(memory), dtype=np.float32).reshape(shape)
