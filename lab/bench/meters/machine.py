"""The machine that measures: what figures mean little without."""

import os
import platform
from contextlib import suppress
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")


def machine(cpu_info: Path = _CPU_INFO) -> dict[str, str]:
    """`cpu`, `cores`, `memory_gib`, `system`, `python`; without those that the system does not tell.

    `cpu_info`: the file in which Linux describes processors.
    """
    found = {
        "cpu": _model_name(cpu_info) or platform.processor() or platform.machine(),
        "cores": str(os.cpu_count() or ""),
        "memory_gib": _memory(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    return {name: value for name, value in found.items() if value}


def _model_name(cpu_info: Path) -> str:
    with suppress(OSError):
        for line in cpu_info.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return ""


def _memory() -> str:
    with suppress(ValueError, OSError, AttributeError):  # where there is no sysconf, or it lacks these names
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f}"
    return ""
