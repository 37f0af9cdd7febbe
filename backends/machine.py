"""What this machine offers a model: memory for rows, cores for threads."""

import os

AUTO_ROWS_AT_MOST = 16
_SHARE = 0.25  # of what is free: the weights may still be paged in, and others live here too
_BYTES_A_THREAD = 16 * 2**20


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


def cores() -> int:
    """Logical cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_for(model_bytes: int) -> int:
    """One thread a core; beyond four logical cores, half of them (the other half are usually siblings).

    Fewer for a small model, whose threads would wait for each other longer than they work: on two cores, two threads
    begin to gain at some 16 MB of weights (`benchmarks.threads`).
    """
    have = cores()
    return max(1, min(have if have <= 4 else have // 2, model_bytes // _BYTES_A_THREAD))
