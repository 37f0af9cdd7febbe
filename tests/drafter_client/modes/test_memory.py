"""ModeMemory: measurements are recalled by models, link and host; an invalid file is ignored and replaced."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from drafter_client.modes.memory import ModeMemory, Setting, memory_file
from specpair.speculation.policy.modes.estimate import ModeMeasurement
from tests.drafter_client.support import Ticks

SETTING = Setting("target", "llama_cpp", 30.0, "draft", "served")
REMOTE = {"remote": ModeMeasurement(128.0, 2.0, 60.0, 80.0)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "modes.json"


@pytest.fixture
def memory(file: Path) -> ModeMemory:
    return ModeMemory(file, Ticks(1.7e9))


def test_kept_measurements_are_recalled(memory: ModeMemory, file: Path) -> None:
    assert memory.recall(SETTING, 0.02) == ({}, 0.0) and memory.acceptance_rates(SETTING) == {}
    memory.keep(SETTING, 0.02, REMOTE, 640)
    found, written = ModeMemory(file).recall(SETTING, 0.021)
    assert found == {"remote": ModeMeasurement(128.0, 2.0, 60.0, 80.0, remembered=True)} and written == 640
    assert memory.acceptance_rates(SETTING) == {"remote": 0.75}


@pytest.mark.parametrize(
    ("setting", "link"),
    [
        (replace(SETTING, target="other"), 0.02),
        (replace(SETTING, engine="torch"), 0.02),
        (replace(SETTING, draft="other"), 0.02),
        (replace(SETTING, served_draft=None), 0.02),
        (replace(SETTING, pass_ms=60.0), 0.02),
        (SETTING, 0.0004),
        (SETTING, 0.06),
    ],
)
def test_other_models_hosts_and_links_have_separate_entries(memory: ModeMemory, setting: Setting, link: float) -> None:
    memory.keep(SETTING, 0.02, REMOTE, 0)
    assert memory.recall(setting, link)[0] == {}
    memory.keep(setting, link, {"fused": ModeMeasurement(50.0, 1.0)}, 0)
    assert set(memory.recall(SETTING, 0.02)[0]) == {"remote"} and set(memory.recall(setting, link)[0]) == {"fused"}


def test_accepted_share_is_recalled_over_any_link(memory: ModeMemory) -> None:
    memory.keep(SETTING, 0.02, REMOTE, 0)
    memory.keep(SETTING, 0.09, {"fused": ModeMeasurement(50.0, 1.0, 10.0, 40.0)}, 0)
    assert memory.acceptance_rates(SETTING) == {"remote": 0.75, "fused": 0.25}


def test_modes_accumulate_and_only_new_measurements_are_written(memory: ModeMemory, file: Path) -> None:
    memory.keep(SETTING, 0.02, REMOTE, 0)
    found, _ = memory.recall(SETTING, 0.02)
    short = ModeMeasurement(5.0, 0.1, 4.0, 5.0)
    memory.keep(SETTING, 0.0205, found | {"fused": ModeMeasurement(64.0, 1.0), "target": short}, 0)
    assert set(memory.recall(SETTING, 0.02)[0]) == {"remote", "fused"}
    assert len(json.loads(file.read_text())["entries"]) == 1


def test_dropped_rate_is_forgotten_but_its_accepted_share_kept(memory: ModeMemory) -> None:
    memory.keep(SETTING, 0.02, {**REMOTE, "fused": ModeMeasurement(200.0, 12.0, 150.0, 200.0)}, 0)
    found, _ = memory.recall(SETTING, 0.02)
    found["fused"].tokens = found["fused"].seconds = 0.0
    memory.keep(SETTING, 0.02, found | REMOTE, 0)
    found, _ = memory.recall(SETTING, 0.02)
    assert found["fused"] == ModeMeasurement(0.0, 0.0, 150.0, 200.0, remembered=True) and found["remote"].rate == 64.0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"version": 2, "entries": []}',
        b'{"version": 1, "entries": [{}]}',
        b'{"version": 1, "entries": ' + b"[" * 5000,
        b'{"version": 1, "entries": [{"setting": {"target": "t", "engine": null, "pass_ms": NaN, "draft": null, '
        b'"served_draft": null}, "link_ms": 1, "written": 0, "modes": {}}]}',
        b'{"version": 1, "entries": [{"setting": {"target": "target", "engine": "llama_cpp", "pass_ms": 30, '
        b'"draft": "draft", "served_draft": "served"}, "link_ms": 20, "written": 0, "modes": {"remote": '
        b'{"tokens_per_second": 0, "tokens": 1, "accepted": 0, "compared": 0, "when": 0}}}]}',
        b" " * (2 << 20),
    ],
    ids=["empty", "half", "binary", "list", "newer", "fields", "deep", "nan", "zero", "huge"],
)
def test_invalid_file_is_logged_once_and_replaced(
    memory: ModeMemory, file: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    assert memory.recall(SETTING, 0.02) == ({}, 0.0) and memory.acceptance_rates(SETTING) == {}
    memory.keep(SETTING, 0.02, REMOTE, 0)
    assert set(memory.recall(SETTING, 0.02)[0]) == {"remote"}
    (record,) = caplog.records
    assert "is no memory of modes and will be replaced" in record.getMessage() and "\n" not in record.getMessage()


def test_memory_file_is_in_the_cache_folder_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path("/home/one")
    assert memory_file({"XDG_CACHE_HOME": "/cache"}, home) == Path("/cache/specpair/modes.json")
    for platform, environment, folder in (
        ("linux", {}, home / ".cache"),
        ("darwin", {}, home / "Library" / "Caches"),
        ("win32", {"LOCALAPPDATA": "/local"}, Path("/local")),
    ):
        monkeypatch.setattr(sys, "platform", platform)
        assert memory_file(environment, home) == folder / "specpair" / "modes.json"
