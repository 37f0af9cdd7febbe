"""Energy is counted over a counter's beginning anew; meters that cannot be read are none."""

from collections.abc import Iterator
from pathlib import Path

from drafter_client.bench.meters.energy import EnergyMeters, Meter, rapl_meters
from drafter_client.bench.meters.machine import machine


def counter(*values: float | None) -> Meter:
    """A meter that shows these values, of a range of 100 joules; None: it cannot be read."""
    left: Iterator[float | None] = iter(values)

    def read() -> float:
        value = next(left)
        if value is None:
            raise OSError
        return value

    return Meter(read, 100.0)


def test_energy_is_counted_from_the_beginning_on() -> None:
    meters = EnergyMeters({"a": counter(90.0, 95.0, 10.0), "b": counter(1.0, 2.0, None, None)})
    assert meters.update() == {"a": 5.0, "b": 1.0}
    assert meters.update() == {"a": 20.0, "b": 1.0}


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
