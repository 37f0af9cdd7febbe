"""Whether processes are left behind."""

import time
from pathlib import Path

import pytest


def gone(pid: int) -> bool:
    """Whether a process that is not this one's child ends within seconds."""
    give_up = time.monotonic() + 20.0
    while time.monotonic() < give_up:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":  # its new parent has not reaped it yet
            return True
        time.sleep(0.01)
    return False


needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="/proc says who lives")
