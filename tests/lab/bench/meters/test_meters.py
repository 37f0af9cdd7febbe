"""Energy is counted over a counter's beginning anew; meters that cannot be read are none."""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.bench.meters.energy import EnergyMeters, Meter, nvml_meters, rapl_meters
from lab.bench.meters.machine import machine

_LOST, _NOT_SUPPORTED = 15, 3  # statuses of NVML


def counter(*values: float | None, range: float | None = 100.0) -> Meter:
    """A meter that shows these values, and begins anew at `range` joules; None: it cannot be read."""
    left: Iterator[float | None] = iter(values)

    def read() -> float:
        value = next(left)
        if value is None:
            raise OSError
        return value

    return Meter(read, range)


class Nvml:
    """A stand-in of NVIDIA's library: GPUs by number, each with the millijoules that it has used.

    `refused`: by number, the status with which a GPU does not tell its energy.
    """

    def __init__(self, *millijoules: int, init: int = 0, count: int = 0) -> None:
        self.millijoules, self.refused = list(millijoules), dict[int, int]()
        self._init, self._count = init, count

    def load(self, name: str) -> "Nvml":
        assert name == "libnvidia-ml.so.1"
        return self

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return self._init

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        ctypes.cast(count, ctypes.POINTER(ctypes.c_uint)).contents.value = len(self.millijoules)
        return self._count

    def nvmlDeviceGetHandleByIndex_v2(self, number: int, device: Any) -> int:  # noqa: N802
        ctypes.cast(device, ctypes.POINTER(ctypes.c_void_p)).contents.value = 1000 + number
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, device: ctypes.c_void_p, energy: Any) -> int:  # noqa: N802
        number = (device.value or 0) - 1000
        ctypes.cast(energy, ctypes.POINTER(ctypes.c_ulonglong)).contents.value = self.millijoules[number]
        return self.refused.get(number, 0)


def test_energy_is_counted_from_the_beginning_on() -> None:
    meters = EnergyMeters({"a": counter(90.0, 95.0, 10.0), "b": counter(1.0, 2.0, 2.5)})
    assert meters.update() == {"a": 5.0, "b": 1.0}
    assert meters.update() == {"a": 20.0, "b": 1.5}


@pytest.mark.parametrize("failing", [counter(1.0, 2.0, None), counter(1.0, 2.0, 0.5, range=None)])
def test_a_meter_that_fails_ends_the_count_of_all(failing: Meter) -> None:
    """One that cannot be read, and one that begins anew although it never should: the rest would be too little."""
    meters = EnergyMeters({"a": counter(1.0, 5.0, 6.0, 7.0), "b": failing})
    assert meters.update() == {"a": 4.0, "b": 1.0}
    assert meters.update() == {}
    assert meters.update() == {}


def test_energy_of_gpus_is_told_in_joules() -> None:
    library = Nvml(981_234_567_890, 5_000, 77)
    library.refused[1] = _NOT_SUPPORTED
    found = nvml_meters(library.load)
    assert {name: meter.read() for name, meter in found.items()} == {"nvml:0": 981_234_567.89, "nvml:2": 0.077}
    meters = EnergyMeters(found)
    library.millijoules = [981_234_567_890 + 350_250, 9_000, 77 + 2_000]
    assert meters.update() == {"nvml:0": 350.25, "nvml:2": 2.0}


def test_a_gpu_that_is_lost_has_no_energy() -> None:
    library = Nvml(1_000)
    meters = EnergyMeters(nvml_meters(library.load))
    library.millijoules = [3_000]
    assert meters.update() == {"nvml:0": 2.0}
    library.refused[0] = _LOST
    assert meters.update() == {}


def test_where_the_driver_is_not_there_gpus_have_no_meters() -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    assert nvml_meters(missing) == {}
    assert nvml_meters(lambda name: object()) == {}  # an old library without these functions
    assert nvml_meters(Nvml(1, init=9).load) == {}  # the driver is not loaded
    assert nvml_meters(Nvml(1, count=999).load) == {}


def test_processors_and_memory_are_read_where_that_is_allowed(tmp_path: Path) -> None:
    for zone, name, energy in (
        ("intel-rapl:0", "package-0", "2500000"),
        ("intel-rapl:0:0", "core", "1"),
        ("intel-rapl:0:1", "dram", "500000"),
        ("intel-rapl:1", "package-1", "broken"),
    ):
        folder = tmp_path / zone
        folder.mkdir()
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text(f"{energy}\n")
        (folder / "max_energy_range_uj").write_text("262143328850\n")
    found = rapl_meters(tmp_path)
    assert {name: meter.read() for name, meter in found.items()} == {"rapl:package-0": 2.5, "rapl:dram": 0.5}
    assert rapl_meters(tmp_path / "none") == {}


def test_the_machine_is_described(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some Core 9\n")
    assert machine(info)["cpu"] == "Some Core 9"
    assert {"cpu", "cores", "system", "python"} <= machine(tmp_path / "none").keys()
