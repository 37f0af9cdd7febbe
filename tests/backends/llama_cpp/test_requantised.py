"""A draft model's copy in Q4_0: when it is made, kept, made anew, left out and removed."""

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from backends.llama_cpp import load as loading
from backends.llama_cpp import requantised as module
from backends.llama_cpp import selfcheck
from backends.llama_cpp.load import load
from backends.llama_cpp.requantised import requantised
from backends.llama_cpp.selfcheck import ChildResult
from models.hub.gguf_head import read_head
from specpair.engines.load_options import FASTEST, LoadOptions

Q4_0 = 2  # ggml's number


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_BYTES", 0)


@pytest.fixture
def model(in_floats: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(in_floats, tmp_path / "small.gguf"))


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The commands of the children that were run from now on."""
    run: Callable[..., ChildResult | None] = selfcheck.run_child
    found: list[object] = []

    def counted(command: object, *arguments: object, **named: object) -> ChildResult | None:
        found.append(command)
        return run(command, *arguments, **named)

    monkeypatch.setattr(module, "run_child", counted)
    return found


def test_the_copy_is_in_q4_0_and_made_once(model: Path, tmp_path: Path, children: list[object]) -> None:
    shares: list[float] = []
    copies = [requantised(model, shares.append, tmp_path / "copies") for _ in range(2)]
    assert copies[0] == copies[1] and copies[0].name == "small-q4_0.gguf" and len(children) == 1
    assert {each.kind for each in read_head(copies[0]).tensors if len(each.shape) > 1} == {Q4_0}
    assert all(0.0 <= each <= 1.0 for each in shares)
    assert not list((tmp_path / "copies").rglob("*.part"))


def test_a_file_that_has_changed_gets_another_copy(model: Path, tmp_path: Path, children: list[object]) -> None:
    copy = requantised(model, folder=tmp_path / "copies")
    os.utime(model, ns=(1, 1))
    assert requantised(model, folder=tmp_path / "copies") == copy and len(children) == 2


def test_the_copy_of_a_file_that_is_gone_is_removed(model: Path, tmp_path: Path) -> None:
    copy = requantised(model, folder=tmp_path / "copies")
    other = model.rename(tmp_path / "other.gguf")
    assert requantised(other, folder=tmp_path / "copies").is_file() and not copy.exists()


@pytest.mark.parametrize("reason", ["already in 4 bits", "small"])
def test_no_copy_where_it_would_hardly_be_faster(
    reason: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, children: list[object]
) -> None:
    if reason == "small":
        monkeypatch.setattr(module, "LEAST_BYTES", 1 << 30)
    else:
        model = requantised(model, folder=tmp_path / "copies")
        children.clear()
    assert requantised(model, folder=tmp_path / "others") == model and not children


def test_a_crash_of_the_library_is_said_once(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "run_child", lambda *_, **__: ChildResult(-6, ""))
    assert [requantised(model, folder=tmp_path / "copies") for _ in range(2)] == [model, model]
    told = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert told == ["small.gguf is computed as it is stored: no copy in Q4_0 could be made: llama.cpp died by SIGABRT"]


@pytest.mark.parametrize("gpu", [False, True])
def test_only_a_cpu_computes_with_the_copy(
    gpu: bool, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(loading, "on_gpus", lambda _: gpu)
    with closing(load(LoadOptions(model=model, weights=FASTEST, context_length=64))) as backend:
        assert backend.model_name == ("small" if gpu else "small-q4_0")
