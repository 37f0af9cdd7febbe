"""The keys that a service accepts: which are found, and when the file is read again."""

import logging
import os
import secrets
from pathlib import Path

import pytest

from specpair.http_service.keys import key_file
from specpair.http_service.keys.access import KeyStore
from specpair.http_service.keys.key_file import KeyFileError, KeyLimits, StoredKey, digest_of


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def add(path: Path, secret: str) -> None:
    key_file.add(path, StoredKey(f"name-{secret}", digest_of(secret)))


def test_keys_of_setting_and_file_are_found(path: Path) -> None:
    key_file.add(path, StoredKey("laptop", digest_of("k1"), KeyLimits(sessions=2), admin=True))
    store = KeyStore("k0", path)
    assert store.in_use
    assert store.find("k1") == StoredKey("laptop", digest_of("k1"), KeyLimits(sessions=2), admin=True)
    assert store.find("k0") == StoredKey("default", digest_of("k0"))
    for wrong in ("", "k", "k00", "K0", "\udcff", digest_of("k1").hex(), f"sha256:{digest_of('k1').hex()}"):
        assert store.find(wrong) is None


def test_each_stored_hash_is_compared_whichever_key_is_given(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        add(path, str(number))
    store, compare, compared = KeyStore(None, path), secrets.compare_digest, []

    def counting(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return compare(one, other)

    monkeypatch.setattr(secrets, "compare_digest", counting)
    for given in ("0", "4", "wrong"):
        compared.clear()
        store.find(given)
        assert compared == [digest_of(str(number)) for number in range(5)]


def test_keys_are_needed_with_a_file_even_if_it_is_empty(path: Path) -> None:
    path.touch()
    assert KeyStore(None, path).in_use and KeyStore("k").in_use
    assert not KeyStore().in_use


def test_file_must_be_right_at_the_start(path: Path) -> None:
    with pytest.raises(KeyFileError, match="there is no file"):
        KeyStore(None, path)


def test_changed_file_is_read_again_within_a_second(path: Path, clock: Clock) -> None:
    add(path, "old")
    store = KeyStore(None, path, clock)
    add(path, "new")
    clock.now = 0.9
    assert store.find("new") is None
    clock.now = 1.0
    assert store.find("new") is not None
    key_file.remove(path, "name-old")
    clock.now = 2.0
    assert store.find("old") is None and store.find("new") is not None


def test_file_is_looked_at_once_a_second_and_read_only_when_it_changed(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(path, "k")
    store, looks, stat = KeyStore(None, path, clock), [], os.stat

    def counted(file: Path) -> os.stat_result:
        looks.append(file)
        return stat(file)

    monkeypatch.setattr(os, "stat", counted)
    monkeypatch.setattr(key_file, "read", lambda _: pytest.fail("read without a change"))
    for step in range(100):
        clock.now = step / 25
        assert store.find("k") is not None
    assert len(looks) == 3


@pytest.mark.parametrize("broken", ["SECRET = [", None], ids=["broken", "gone"])
def test_broken_file_leaves_the_keys_and_is_logged_once_without_its_content(
    path: Path, clock: Clock, caplog: pytest.LogCaptureFixture, broken: str | None
) -> None:
    add(path, "k")
    good, store = path.read_text(), KeyStore(None, path, clock)
    path.unlink() if broken is None else path.write_text(broken)
    with caplog.at_level(logging.INFO):
        for second in range(1, 5):
            clock.now = float(second)
            assert store.find("k") is not None
    [record] = caplog.records
    assert record.levelno == logging.ERROR and str(path) in record.message and "SECRET" not in record.message
    path.write_text(good)
    add(path, "other")
    clock.now = 10.0
    assert store.find("other") is not None, "it is read again when it is right again"
