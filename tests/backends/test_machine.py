"""How many slots fit into memory, how many threads are used, and where compiled programs are kept and published."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends import machine
from backends.compilation import Published, compilation, folder_of
from backends.machine import MOST_AUTO_SLOTS, available_bytes, cores, slots_that_fit, threads_for
from specpair.engines.errors import ModelLoadError
from tests.stand_ins.mountpoint import mounted

MIB = 2**20


@pytest.mark.parametrize(
    ("per_slot", "available", "slots"),
    [
        (MIB, 40 * MIB, 10),  # a quarter
        (MIB, 39 * MIB, 9),
        (MIB, 3 * MIB, 1),  # at least one in any case
        (MIB, 0, 1),
        (1, 10**12, MOST_AUTO_SLOTS),
        (0, MIB, MOST_AUTO_SLOTS),  # an engine without a cache
    ],
)
def test_slots_that_fit_a_quarter_of_the_memory(per_slot: int, available: int, slots: int) -> None:
    assert slots_that_fit(per_slot, available) == slots


@pytest.mark.parametrize(
    ("cores", "model_bytes", "threads"),
    [
        (1, 8000 * MIB, 1),
        (2, 8000 * MIB, 2),
        (4, 8000 * MIB, 4),
        (16, 8000 * MIB, 8),  # the others are siblings
        (4, 0, 1),
        (4, 31 * MIB, 1),  # a small model, whose threads would wait longer than they compute
        (4, 32 * MIB, 2),
    ],
)
def test_threads_follow_cores_and_model_size(
    cores: int, model_bytes: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "CGROUP", Path("/nowhere"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert threads_for(model_bytes) == threads


def test_container_limits_memory_and_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    everything = available_bytes()
    assert cores() == 64
    for name, text in {"memory.max": "5000000", "memory.current": "2000000", "cpu.max": "250000 100000"}.items():
        (tmp_path / name).write_text(text + "\n")
    assert available_bytes() == 3_000_000
    assert cores() == 3
    for name, text in {"memory.max": "max", "cpu.max": "max 100000"}.items():
        (tmp_path / name).write_text(text + "\n")
    assert available_bytes() == pytest.approx(everything, rel=0.2)
    assert cores() == 64


def test_a_compilation_is_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = iter((100.0, 420.0))
    with (
        caplog.at_level(logging.INFO, "specpair"),
        compilation("llama", 9, tmp_path, workers=2, clock=lambda: next(clock)),
    ):
        assert caplog.messages == [
            "llama: 9 programs to compile, 2 at a time: seconds to minutes each, much less for those compiled before; "
            f"they are kept in {tmp_path}"
        ]
    assert caplog.messages[-1] == "llama: 9 programs compiled and loaded in 320 s"


def test_folder_is_the_given_one_or_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for given, folder in ((tmp_path / "x", tmp_path / "x"), (None, tmp_path / "specpair" / "compiled")):
        assert folder_of(given) == folder and folder.is_dir()


def test_folder_that_cannot_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that was given is an error; without the usual one, programs are not kept."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ModelLoadError, match=r"^compile_cache .*file: cannot be written to: it is a file$") as caught:
        folder_of(file)
    assert caught.value.setting == "compile_cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert folder_of(None) is None
    assert "compiled programs cannot be kept in " in caplog.text and "Not a directory: set compile_cache" in caplog.text
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(ModelLoadError, match="cannot be written to: Permission denied"):
        folder_of(tmp_path / "x")


FILES = {"a.neff": b"1" * 3000, "neuronxcc/MODULE_1/model.neff": b"22", "neuronxcc/MODULE_1/model.log": b""}


@pytest.fixture(params=["disk", "mountpoint"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "shared"
    folder.mkdir()
    if request.param == "disk":
        yield folder
    else:
        with mounted(folder):
            yield folder


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    return filled(tmp_path / "compiled", FILES)


def filled(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_published_files_are_fetched(shared: Path, programs: Path, tmp_path: Path) -> None:
    published = Published(shared, "qwen")
    assert published.path is None and published.fetch(tmp_path / "elsewhere") == 0
    published.publish(programs)
    assert Published(shared, "qwen").fetch(tmp_path / "elsewhere") == len(FILES)
    assert content(tmp_path / "elsewhere") == FILES
    assert Published(shared, "other").path is None


@pytest.mark.parametrize("marker", ["", "qwen.00000000", "..", "../compiled"])
def test_marker_that_was_cut_short_publishes_nothing(shared: Path, programs: Path, marker: str) -> None:
    published = Published(shared, "qwen")
    published.marker.write_text(marker)
    assert published.path is None
    published.publish(programs)
    assert published.path is not None and content(published.path) == FILES


def test_interrupted_publication_leaves_what_was_there(
    shared: Path, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = Published(shared, "qwen")
    published.publish(programs)

    def fails(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="No space left"):
            published.publish(filled(tmp_path / "newer", {"b.neff": b"3"}))
    assert published.path is not None and content(published.path) == FILES
    assert len(list(shared.iterdir())) == 2


def test_mount_that_allows_no_deleting_keeps_what_was_there(
    tmp_path: Path, programs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    with mounted(folder, allow_delete=False):
        published = Published(folder, "qwen")
        published.publish(programs)
        with pytest.raises(PermissionError):
            published.publish(filled(tmp_path / "newer", {"b.neff": b"3"}))
        assert published.path is not None and content(published.path) == FILES
    assert "is unused and can be deleted: Operation not permitted" in caplog.text
