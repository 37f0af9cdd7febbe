"""How many rows fit into memory."""

import os

AUTO_ROWS_AT_MOST = 16
_SHARE = 0.25  # of what is free: the weights may still be paged in, and others live here too


def available_bytes() -> int:
    """Memory free for use now where the system tells (Linux), else all of the machine's."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # no procfs: macOS and others, answered below
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def rows_that_fit(bytes_per_row: int, available: int) -> int:
    """Rows for `auto`: a quarter of the available memory, at least one, at most `AUTO_ROWS_AT_MOST`."""
    return max(1, min(AUTO_ROWS_AT_MOST, int(available * _SHARE) // max(1, bytes_per_row)))


def default_threads() -> int:
    """One thread a core; beyond four logical cores, half of them (the other half are usually siblings)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if cores <= 4 else cores // 2
