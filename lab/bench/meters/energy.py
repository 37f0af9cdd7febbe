"""Energy meters of this machine: those of processors (RAPL, as Linux shows it) and of NVIDIA's GPUs (NVML).

A meter that is not there or may not be read is no meter: most systems let only root read RAPL.
"""

import ctypes
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

_POWERCAP = Path("/sys/class/powercap")
_NVML = "libnvidia-ml.so.1"


class Meter(NamedTuple):
    """A counter of energy that begins anew at `range`.

    `read`: joules. Raises OSError where it cannot be read any more.
    `range`: joules; None: it does not begin anew.
    """

    read: Callable[[], float]
    range: float | None = None


class EnergyMeters:
    """Counts the joules of each meter since its making; `update` has to come before a counter begins anew twice.

    If a meter fails, nothing is told from then on: what the others count would be too little.
    """

    def __init__(self, meters: Mapping[str, Meter]) -> None:
        self._meters = meters
        self._last: dict[str, float] = {}
        self._joules: dict[str, float] = {}
        self.update()

    def update(self) -> dict[str, float]:
        """Read all meters. Returns the joules of each since the beginning; nothing, if one of them failed."""
        for name, meter in self._meters.items():
            try:
                now = meter.read()
            except OSError:
                return self._fail()
            gained = now - self._last.get(name, now)
            if gained < 0:
                if meter.range is None:  # as after a restart of the driver
                    return self._fail()
                gained += meter.range
            self._last[name] = now
            self._joules[name] = self._joules.get(name, 0.0) + gained
        return {name: round(joules, 3) for name, joules in self._joules.items()}

    def _fail(self) -> dict[str, float]:
        self._meters, self._joules = {}, {}
        return {}


def all_meters() -> dict[str, Meter]:
    """The meters of this machine, by name."""
    return {**rapl_meters(), **nvml_meters()}


def rapl_meters(folder: Path = _POWERCAP) -> dict[str, Meter]:
    """Those of whole processors and of their memory: `rapl:package-0`, `rapl:dram`. Parts of a package, such as its
    cores, count in the package."""
    found: dict[str, Meter] = {}
    for zone in sorted(folder.glob("intel-rapl:*")):
        with suppress(OSError, ValueError):
            name = (zone / "name").read_text().strip()
            if not name.startswith(("package", "dram")):
                continue
            key = f"rapl:{name}" if f"rapl:{name}" not in found else f"rapl:{name}:{zone.name.partition(':')[2]}"
            meter = Meter(
                lambda path=zone / "energy_uj": int(path.read_text()) / 1e6,  # type: ignore[misc]
                int((zone / "max_energy_range_uj").read_text()) / 1e6,
            )
            meter.read()
            found[key] = meter
    return found


def nvml_meters(load: Callable[[str], Any] = ctypes.CDLL) -> dict[str, Meter]:
    """Those of NVIDIA's GPUs: `nvml:0`, … by number.

    `load`: gives the library of a name. Raises OSError where there is none.
    """
    try:
        library = load(_NVML)
        if library.nvmlInit_v2() != 0:
            return {}
        count = ctypes.c_uint()
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return {}
    except (OSError, AttributeError):
        return {}
    found: dict[str, Meter] = {}
    for number in range(count.value):
        device = ctypes.c_void_p()
        if library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(device)) != 0:
            continue
        meter = Meter(lambda device=device: _millijoules(library, device) / 1000)  # type: ignore[misc]
        with suppress(OSError):  # GPUs before Volta count no energy
            meter.read()
            found[f"nvml:{number}"] = meter
    return found


def _millijoules(library: Any, device: ctypes.c_void_p) -> int:
    energy = ctypes.c_ulonglong()
    status = library.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(energy))
    if status != 0:
        raise OSError(f"NVML status {status}")
    return energy.value
