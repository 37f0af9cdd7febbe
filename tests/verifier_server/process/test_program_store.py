"""Programs that one machine has compiled come to another one by way of `compile_store`."""

from pathlib import Path

import pytest

from specpair.engines.errors import ModelLoadError
from tests.stand_ins.mountpoint import mounted
from verifier_server.model_files import fetch_programs, publish_programs
from verifier_server.settings import Settings


def machine(folder: Path, store: Path | None) -> Settings:
    return Settings(backend="neuron_legacy", compile_cache=folder, compile_store=store)


def test_programs_come_from_one_machine_to_another(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = machine(tmp_path / "1", tmp_path / "bucket"), machine(tmp_path / "2", tmp_path / "bucket")
    (tmp_path / "bucket").mkdir()
    with mounted(tmp_path / "bucket"):
        fetch_programs(second)
        assert f"compile_store {tmp_path / 'bucket'} has no programs: they are compiled here" in caplog.text
        (tmp_path / "1" / "neuron").mkdir(parents=True)
        (tmp_path / "1" / "neuron" / "a.neff").write_bytes(b"1")
        publish_programs(first)
        fetch_programs(second)
    assert (tmp_path / "2" / "neuron" / "a.neff").read_bytes() == b"1"


def test_without_a_store_nothing_is_copied(tmp_path: Path) -> None:
    settings = machine(tmp_path / "1", None)
    publish_programs(settings)
    fetch_programs(settings)
    assert list((tmp_path / "1").iterdir()) == []


def test_store_that_cannot_be_used_is_named_as_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = machine(tmp_path / "1", tmp_path / "file" / "below")
    with pytest.raises(ModelLoadError, match=r"compile_store .*below: cannot be written to: Not a directory") as caught:
        publish_programs(settings)
    assert caught.value.setting == "compile_store"


def test_engine_that_compiles_nothing_has_no_store(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="compile_store: the engine is scripted, which compiles nothing: leave it out"):
        Settings(backend="scripted", compile_store=tmp_path)
