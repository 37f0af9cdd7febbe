"""Detection of changes to the model files of a running verifier."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models import DEFAULT_DRAFT
from tests.verifier_server.conftest import LiveServer
from verifier_server.process.model_files import MappedFiles, parts
from verifier_server.settings import Settings


class Clock:
    """A clock that advances by a minute with each call."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 60.0
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights" * 1000)
    os.utime(path, (1_000, 1_000))
    return path


def test_unchanged_file_is_no_change(file: Path) -> None:
    files = MappedFiles([file], Clock())
    assert files.change() is None
    files.close()


@pytest.mark.parametrize(
    ("bytes_now", "lost", "words"),
    [(7000, False, "was written to"), (7001, False, "was written to"), (6999, True, "was cut from 7000 to 6999 bytes")],
)
def test_overwritten_file_is_a_change(file: Path, bytes_now: int, lost: bool, words: str) -> None:
    files = MappedFiles([file], Clock())
    file.write_bytes(b"x" * bytes_now)
    change = files.change()
    assert change is not None and change.lost is lost
    assert (
        f"the model file {file} {words} while it is in use" in change.reason and "restart the verifier" in change.reason
    )
    files.close()


def test_replaced_or_removed_file_is_no_change(file: Path) -> None:
    files = MappedFiles([file], Clock())
    other = file.with_name("other.gguf")
    other.write_bytes(b"short")
    other.replace(file)
    assert files.change() is None
    file.unlink()
    assert files.change() is None
    files.close()


def test_files_are_checked_once_a_second_at_most(file: Path) -> None:
    now = 0.0
    files = MappedFiles([file], lambda: now)
    assert files.change() is None
    file.write_bytes(b"")
    now = 0.9
    assert files.change() is None
    now = 1.0
    change = files.change()
    assert change is not None and change.lost
    files.close()


def test_all_parts_of_a_split_file_are_watched(tmp_path: Path) -> None:
    assert parts(tmp_path / "m.gguf") == [tmp_path / "m.gguf"]
    named = [tmp_path / f"m-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert parts(named[0]) == named


def test_mapped_files_follow_the_settings(file: Path) -> None:
    assert Settings(model=file).mapped_files == [file]
    assert Settings(model=file, mmap=False).mapped_files == []
    assert Settings(model=file, draft_model=file).mapped_files == [file, file]
    assert Settings(backend="scripted").mapped_files == []


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[tuple[LiveServer, Path]]:
    """A verifier whose model files are copies, and the path of its draft model."""
    model, draft = tmp_path / "model.gguf", tmp_path / "draft.gguf"
    for path in (model, draft):
        shutil.copyfile(DEFAULT_DRAFT, path)
        os.utime(path, (1_000, 1_000))
    chosen: dict[str, Any] = {"context": 256, "threads": 1, "slots": 1, "draft_slots": 1, "draft_threads": 1}
    live = LiveServer(Settings(model=model, draft_model=draft, **chosen), None)
    live.wait_until_ready()
    yield live, draft
    live.close()


def test_health_reports_a_changed_file(copies: tuple[LiveServer, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier_server.process.model_files.CHECK_EVERY", 0.0)
    live, draft = copies
    assert live.post("/generate", {"prompt": "def", "max_tokens": 4, "mode": "fused"})["generated_tokens"] == 4
    assert "warning" not in live.http.get("/health").json()
    with draft.open("r+b") as weights:  # the same bytes, so the texts stay correct
        weights.write(DEFAULT_DRAFT.read_bytes()[:100])
    health = live.http.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "ready")
    assert f"the model file {draft} was written to while it is in use" in health.json()["warning"]
    size = draft.stat().st_size
    os.truncate(draft, size - 1)
    health = live.http.get("/health")
    os.truncate(draft, size)
    assert (health.status_code, health.json()["status"]) == (503, "failed")
    assert f"the model file {draft} was cut from" in health.json()["reason"]
