"""Caches that others have filled, that cannot be written, or that have no links; and damaged records in them."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import huggingface_hub
import pytest

from models.commands.finding import in_cache
from models.errors import HubError, HubRateLimited
from models.hub.cache import repositories_in
from models.hub.download import fetch_model, find_model
from models.hub.names import ModelName, parse_name
from models.hub.repository import Hub
from tests.stand_ins.hub import COMMIT, HubStandIn, serving

CONTENT = b"GGUF" + bytes(1000)
TOY = ModelName("u/toy")
NOBODY = 65534


@pytest.fixture
def stand_in() -> Iterator[HubStandIn]:
    with serving({"u/toy": {"README.md": b"#", "toy-Q8_0.gguf": CONTENT}}) as hub:
        yield hub


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users can read, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    _permit(folder, 0o700)
    shutil.rmtree(folder)


def _permit(folder: Path, mode: int) -> None:
    for each in (folder, *folder.rglob("*")):
        if each.is_dir():
            each.chmod(mode)


@contextmanager
def _another_user() -> Iterator[None]:
    """In this context, permissions bind root, too. What it imports should be imported before: it may be root's."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def _hub(stand_in: HubStandIn, cache: Path) -> Hub:
    return Hub(stand_in.address, cache, False, wait=lambda _seconds: None)


def _theirs(stand_in: HubStandIn, cache: Path) -> Path:
    return Path(
        huggingface_hub.hf_hub_download(
            "u/toy", "toy-Q8_0.gguf", cache_dir=cache, endpoint=stand_in.address, token=False
        )
    )


def test_what_a_read_only_cache_has_whole_is_used(
    stand_in: HubStandIn, shared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hub, theirs = _hub(stand_in, shared / "ours"), _hub(stand_in, shared / "theirs")
    path, other = fetch_model(TOY, hub, refresh=True), _theirs(stand_in, shared / "theirs")
    _permit(shared, 0o555)
    with _another_user():
        for refresh in (False, True):
            assert fetch_model(TOY, hub, refresh=refresh) == path
            assert fetch_model(TOY, theirs, refresh=refresh) == other
        assert [str(each.name) for each in in_cache(hub)] == ["u/toy:Q8_0"] and not caplog.records
        stand_in.repositories["u/toy"]["toy-Q8_0.gguf"] = b"newer"
        stand_in.commit = "f" * 40
        assert fetch_model(TOY, hub, refresh=True) == path
        assert "cannot be fetched into the cache" in caplog.text
        assert "using toy-Q8_0.gguf from the cache" in caplog.text
        stand_in.repositories["u/new"] = {"a-Q8_0.gguf": CONTENT}
        with pytest.raises(HubError, match=r"u/new: the cache cannot be used: .*; set HF_HUB_CACHE to a folder that y"):
            fetch_model(ModelName("u/new"), hub)


def test_a_cache_that_cannot_be_read_is_told(
    stand_in: HubStandIn, shared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hub = _hub(stand_in, shared / "ours")
    fetch_model(TOY, hub)
    hub.cached("u/toy").folder.chmod(0)
    with _another_user():
        assert list(in_cache(hub)) == [] and "u/toy is left out: the cache cannot be read: " in caplog.text
        with pytest.raises(HubError, match=r"u/toy: the cache cannot be used: .*Permission denied"):
            fetch_model(TOY, hub)
    (shared / "ours").chmod(0)
    with _another_user(), pytest.raises(PermissionError):
        hub.repositories()


def test_without_links_the_content_itself_has_the_name(
    stand_in: HubStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", refuse)
    hub = _hub(stand_in, tmp_path)
    path = fetch_model(TOY, hub)
    assert stat.S_ISREG(path.lstat().st_mode) and path.read_bytes() == CONTENT
    assert find_model(TOY, hub) == fetch_model(TOY, hub, refresh=True) == path
    assert (
        stand_in.sent[path.name] == len(CONTENT) and len(list((tmp_path / "models--u--toy" / "blobs").iterdir())) == 0
    )
    assert hub.cached("u/toy").remove(path) == len(CONTENT) and find_model(TOY, hub) is None
    assert fetch_model(TOY, hub).read_bytes() == CONTENT


def test_a_hub_with_too_many_requests_leaves_what_is_in_the_cache(stand_in: HubStandIn, tmp_path: Path) -> None:
    path = _theirs(stand_in, tmp_path)
    stand_in.refusals = [(429, {"Retry-After": "3600"})]
    assert fetch_model(TOY, _hub(stand_in, tmp_path)) == path
    stand_in.refusals = [(429, {"Retry-After": "3600"})]
    with pytest.raises(HubRateLimited, match="wait 3600 seconds"):
        fetch_model(ModelName("u/other"), _hub(stand_in, tmp_path))


@pytest.mark.parametrize("record", [b"\xff", b"[" * 100_000, b"[5]", b'[["../a", 1, "0"]]', b'[["a", 1]]', b"null"])
def test_a_damaged_record_is_read_as_none(stand_in: HubStandIn, tmp_path: Path, record: bytes) -> None:
    hub = _hub(stand_in, tmp_path)
    path = fetch_model(TOY, hub)
    (tmp_path / "models--u--toy" / "specpair" / f"{COMMIT}.json").write_bytes(record)
    assert find_model(parse_name("u/toy:Q8_0"), hub) == path
    (path.parent / "a\x1b[2J.gguf").write_bytes(CONTENT)
    assert [str(each.name) for each in in_cache(hub)] == ["u/toy:Q8_0"]


@pytest.mark.parametrize("commit", [b"\xff\xfe", b"../../etc", b"a\0b", b"", b"x" * 100_000])
def test_a_damaged_commit_is_read_as_none(stand_in: HubStandIn, tmp_path: Path, commit: bytes) -> None:
    hub = _hub(stand_in, tmp_path)
    fetch_model(TOY, hub)
    (tmp_path / "models--u--toy" / "refs" / "main").write_bytes(commit)
    assert find_model(TOY, hub) is None and list(in_cache(hub)) == []
    assert fetch_model(TOY, hub).read_bytes() == CONTENT


def test_only_folders_of_models_are_listed(tmp_path: Path) -> None:
    for name in (
        "models--u--toy",
        "models--u--a\x1b]0;t\x07",
        "models--u--..",
        "models--gpt2",
        "datasets--u--d",
        ".locks",
    ):
        (tmp_path / name).mkdir()
    (tmp_path / "models--u--file").write_bytes(b"")
    assert repositories_in(tmp_path) == ["u/toy"] and repositories_in(tmp_path / "none") == []
