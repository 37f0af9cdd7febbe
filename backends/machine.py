"""What this machine offers: memory for rows, cores for threads, a folder for what can be found out again."""

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from backends.base import Backend, ModelLoadError

AUTO_ROWS_AT_MOST = 16
THREADS_AT_MOST = 1024  # some thousand crash the OpenMP of GCC, which llama.cpp uses
_CGROUP = Path("/sys/fs/cgroup")
_SHARE = 0.25  # of what is free: the weights may still be paged in, and others live here too
_BYTES_A_THREAD = 16 * 2**20


def available_bytes() -> int:
    """Memory free for use now where the system tells (Linux), else all of the machine's; a container's share of it."""
    return min([_free_of_the_machine(), *_free_of_the_container()])


def cache_folder(environment: Mapping[str, str] = os.environ, home: Path | None = None) -> Path | None:
    """Where our programs keep what they can find out again, as the platform has it; None without a home.

    `home`: in place of the user's.
    """
    named = environment.get("XDG_CACHE_HOME") or (environment.get("LOCALAPPDATA") if sys.platform == "win32" else None)
    try:
        usual = "Library/Caches" if sys.platform == "darwin" else ".cache"
        return Path(named or (home or Path.home()) / usual) / "specpair"
    except RuntimeError:  # of a user whom the system does not know
        return None


def _free_of_the_machine() -> int:
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # no procfs: macOS and others


def _free_of_the_container() -> list[int]:
    """What a control group (version 2) leaves, if it sets a limit."""
    limit, used = _lines(_CGROUP / "memory.max"), _lines(_CGROUP / "memory.current")
    if not (limit and used and limit[0].isdecimal()):  # none, or "max"
        return []
    return [max(0, int(limit[0]) - int(used[0]))]


def _lines(path: Path) -> list[str]:
    """Lines of a file that not every system has."""
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []


def rows_that_fit(bytes_per_row: int, available: int) -> int:
    """Rows for `auto`: a quarter of the available memory, at least one, at most `AUTO_ROWS_AT_MOST`."""
    return max(1, min(AUTO_ROWS_AT_MOST, int(available * _SHARE) // max(1, bytes_per_row)))


def check_room(backend: Backend, available: int) -> None:
    """Raises ModelLoadError where the KV cache that `backend` is about to make takes more than is available, in bytes.

    Libraries would try to have anything, and take the process or the machine down with them.
    """
    if backend.kv_bytes > available:
        raise ModelLoadError(
            f"the KV cache of {backend.rows} rows of {backend.context_length} tokens takes "
            f"{backend.kv_bytes / 2**30:.1f} GiB, {available / 2**30:.1f} are available: lower rows or context"
        )


def cores() -> int:
    """Logical cores that this process may use, a container's limit included."""
    have = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for line in _lines(_CGROUP / "cpu.max"):  # "quota period" in microseconds, or "max period"
        quota, _, period = line.partition(" ")
        if quota.isdecimal() and period.isdecimal():
            have = min(have, max(1, math.ceil(int(quota) / int(period))))
    return have


def threads_for(model_bytes: int) -> int:
    """One thread a core; beyond four logical cores, half of them (the other half are usually siblings).

    Fewer for a small model, whose threads would wait for each other longer than they work: on two cores, two threads
    begin to gain at some 16 MB of weights (`benchmarks.threads`).
    """
    have = cores()
    return max(1, min(have if have <= 4 else have // 2, model_bytes // _BYTES_A_THREAD))
