"""This machine: memory and the slots that fit, cores and threads, the user's cache folder, its id, its programs."""

import hashlib
import math
import os
import platform
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from specpair.engines.backend import Backend
from specpair.engines.errors import NoRoom

MOST_AUTO_SLOTS = 16
CGROUP = Path("/sys/fs/cgroup")
_PATIENCE = 10.0  # seconds for a vendor's program
_NEURON_TOOLS = "/opt/aws/neuron/bin"  # often not on the path
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# The share of the available memory that `slots_that_fit` uses: weights may still be paged in, and other programs need
# memory, too.
_SHARE = 0.25
_BYTES_A_THREAD = 16 * 2**20  # bytes of weights for which another thread pays


def available_bytes() -> int:
    """Bytes of memory available now, where the system tells (Linux); else all of the machine's memory.

    A container's limit (control groups, version 2) is respected.
    """
    told = [line.split()[1] for line in _lines(Path("/proc/meminfo")) if line.startswith("MemAvailable:")]
    free = int(told[0]) * 1024 if told else total_bytes()  # no procfs: macOS and others
    limit, used = _lines(CGROUP / "memory.max"), _lines(CGROUP / "memory.current")
    limited = limit and used and limit[0].isdecimal()  # else there is no such file, or "max"
    return min(free, max(0, int(limit[0]) - int(used[0]))) if limited else free


def total_bytes() -> int:
    """Bytes of the machine's memory, without a container's limit."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def processor() -> str:
    """The processor's name as /proc/cpuinfo tells it, else its architecture."""
    named = (line.partition(":") for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name"))
    return next((name.strip() for _, _, name in named), "") or platform.processor() or platform.machine()


def cache_folder(environment: Mapping[str, str] = os.environ, home: Path | None = None) -> Path | None:
    """The folder where our programs cache; None for a user without a home. `home`: replaces the user's home folder."""
    named = environment.get("XDG_CACHE_HOME") or (environment.get("LOCALAPPDATA") if sys.platform == "win32" else None)
    try:
        usual = "Library/Caches" if sys.platform == "darwin" else ".cache"
        return Path(named or (home or Path.home()) / usual) / "specpair"
    except RuntimeError:  # the system does not know this user
        return None


def corpus_folder() -> Path | None:
    """The folder where indexes of draft corpora are kept; None for a user without a home."""
    folder = cache_folder()
    return None if folder is None else folder / "corpus"


def _lines(path: Path) -> list[str]:
    """The lines of a system file; none where the system lacks the file."""
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []


def slots_that_fit(bytes_per_slot: int, available: int) -> int:
    """The default number of slots, 1 to `MOST_AUTO_SLOTS`, that fits a quarter of the `available` bytes."""
    return max(1, min(MOST_AUTO_SLOTS, int(available * _SHARE) // max(1, bytes_per_slot)))


def check_room(backend: Backend, available: int) -> None:
    """Raises NoRoom if the KV cache that `backend` is about to allocate exceeds the `available` bytes.

    Libraries would allocate it all the same, and bring down the process or the machine.
    """
    if backend.kv_bytes > available:
        raise NoRoom(
            f"the KV cache of {backend.slots} slots of {backend.context_length} tokens takes "
            f"{gib(backend.kv_bytes)} GiB, {gib(available)} are available: lower slots or context"
        )


def gib(count: float) -> str:
    """Bytes as GiB, for error messages."""
    return f"{count / 2**30:.1f}"


def cores() -> int:
    """Logical cores that this process may use, within a container's limit."""
    have = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for line in _lines(CGROUP / "cpu.max"):  # "quota period" in microseconds, or "max period"
        quota, _, period = line.partition(" ")
        if quota.isdecimal() and period.isdecimal():
            have = min(have, max(1, math.ceil(int(quota) / int(period))))
    return have


def cores_to_use() -> int:
    """The number of CPU threads for one program: one per core; beyond four logical cores, one per two (usually
    siblings)."""
    have = cores()
    return have if have <= 4 else have // 2


def threads_for(model_bytes: int) -> int:
    """The default number of CPU threads for a model with weights of `model_bytes`.

    A small model gets fewer threads than there are cores to use, since its threads would wait for each other longer
    than they compute: on two cores, two threads begin to pay at about 16 MB of weights.
    """
    return max(1, min(cores_to_use(), model_bytes // _BYTES_A_THREAD))


@cache
def machine_id() -> str:
    """An opaque hash that all programs on this machine share, also in containers.

    It changes when the machine is started anew, where the system names its start (Linux).
    """
    started = "".join(_lines(_BOOT_ID))
    named = started or f"{platform.node()} {uuid.getnode():x}"
    return hashlib.sha256(f"specpair machine {named}".encode()).hexdigest()[:32]


def printed(program: str, *arguments: str) -> list[str]:
    """The lines that a program prints; none if it is missing, fails or hangs, as without a device."""
    path = shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), _NEURON_TOOLS]))
    if path is None:
        return []
    try:
        done = subprocess.run(
            [path, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    text = done.stdout.decode(errors="replace") if done.returncode == 0 else ""
    return [line.strip() for line in text.splitlines() if line.strip()]
