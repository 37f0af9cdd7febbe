"""Which keys a service accepts, when their file is read again, and which requests are admitted, as which caller."""

import logging
import secrets
from pathlib import Path

import pytest

from specpair.http_service.keys import key_file
from specpair.http_service.keys.access import DRAFTER, VERIFIER, Access, KeyStore, ServiceNames, client_of
from specpair.http_service.keys.key_file import KeyFileError, KeyLimits, StoredKey, digest_of
from specpair.protocol.errors import Forbidden, Unauthorized

KEYED = Access(KeyStore("s3cret"))
OPEN = Access(KeyStore())
INSECURE = Access(KeyStore(), insecure=True)
OWNER = digest_of("s3cret").hex()

SERVED = [
    None,  # a UNIX socket
    *["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"],
    *["10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.1.1", "::ffff:192.168.1.1"],
    *["100.64.0.1", "100.127.255.255", "169.254.3.4"],
    *["fe80::1", "fe80::1%eth0", "febf::1", "fc00::1", "fdff:ffff::1"],
]
REFUSED = [
    *("8.8.8.8", "9.255.255.255", "11.0.0.0", "172.15.255.255", "172.32.0.0", "192.167.255.255", "192.169.0.0"),
    *("100.63.255.255", "100.128.0.0", "169.253.255.255", "192.0.2.1", "198.18.0.1", "0.0.0.0", "255.255.255.255"),
    *("2001:db8::1", "2a00:1450::1", "fec0::1", "::", "::10.0.0.1", "64:ff9b::10.0.0.1", "::ffff:8.8.8.8"),
    *("2001:db8::1%eth0", "testclient", "unknown", "010.0.0.1", "10.1", "localhost", "", "10.0.0.1 "),
]


@pytest.mark.parametrize("address", SERVED)
def test_local_addresses_are_served_without_a_key(address: str | None) -> None:
    assert OPEN.identify(address, "").owner == ""
    assert INSECURE.identify(address, "").owner == ""
    with pytest.raises(Unauthorized):
        KEYED.identify(address, "")


@pytest.mark.parametrize("address", REFUSED)
def test_refusal_of_public_addresses_says_what_to_set(address: str) -> None:
    with pytest.raises(
        Forbidden, match=r"start it with VERIFIER_API_KEY=<key>.*or with VERIFIER_INSECURE=1"
    ) as refused:
        OPEN.identify(address, "Bearer s3cret")
    assert repr(address) in refused.value.message
    assert INSECURE.identify(address, "").owner == ""
    assert KEYED.identify(address, "Bearer s3cret").owner == OWNER


@pytest.mark.parametrize(
    "headers",
    [
        ["10.0.0.1"],
        ["192.168.1.1, 127.0.0.1"],
        ["fd00::1", "10.0.0.1"],
        ["10.0.0.1:5123"],
        ["[fd00::1]:5123"],
        ['for=192.168.0.7;proto=http, FOR="[fd00::1]:4711"'],
    ],
)
def test_requests_forwarded_for_private_networks_are_served(headers: list[str]) -> None:
    assert OPEN.identify("127.0.0.1", "", headers).owner == ""


@pytest.mark.parametrize(
    "headers",
    [
        *(["8.8.8.8"], ["10.0.0.1, 8.8.8.8"], ["8.8.8.8, 10.0.0.1"], ["10.0.0.1", "2001:db8::1"]),
        *(["[2001:db8::1]:5123"], ["unknown"], [""]),
        *(["for=8.8.8.8"], ["for=_hidden;by=10.0.0.1"], ["proto=https"], ["for=10.0.0.1, for=unknown"]),
    ],
)
@pytest.mark.parametrize("address", [None, "127.0.0.1", "10.0.0.1"])
def test_requests_forwarded_for_public_addresses_are_refused(address: str | None, headers: list[str]) -> None:
    with pytest.raises(Forbidden):
        OPEN.identify(address, "", headers)
    assert INSECURE.identify(address, "", headers).owner == ""
    assert KEYED.identify(address, "Bearer s3cret", headers).owner == OWNER


def test_forwarded_header_does_not_admit_a_public_address() -> None:
    with pytest.raises(Forbidden):
        OPEN.identify("8.8.8.8", "", ["127.0.0.1"])


@pytest.mark.parametrize("address", ["203.0.113.9", "2001:db8::1"])
def test_this_machine_is_served_at_its_public_address(address: str) -> None:
    assert OPEN.identify(address, "", server=address).client == client_of(address)
    for other in ("203.0.113.8", "2001:db8::2", "127.0.0.1", None):
        with pytest.raises(Forbidden):
            OPEN.identify(address, "", server=other)


@pytest.mark.parametrize("header", ["203.0.113.9", "8.8.8.8", "for=203.0.113.9"])
def test_header_cannot_name_the_public_address_of_this_machine(header: str) -> None:
    """With uvicorn's --forwarded-allow-ips=*, the address in the header is also that of the connection."""
    with pytest.raises(Forbidden):
        OPEN.identify("203.0.113.9", "", [header], server="203.0.113.9")


@pytest.mark.parametrize("given", ["Bearer s3cret", "bearer s3cret", "BEARER   s3cret "])
def test_every_address_with_the_key_has_the_same_owner(given: str) -> None:
    near, far = KEYED.identify("127.0.0.1", given), KEYED.identify("8.8.8.8", given)
    assert near.owner == near.client == far.owner == far.client != ""
    assert near.name != far.name, "the latest session depends on key and address"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("fd00::1", "fd00::ffff:ffff:ffff:ffff", True),  # one machine can have all these addresses
        ("fd00::1", "fd00:0:0:1::1", False),
        ("fe80::1", "fe80::2", False),
        ("127.0.0.1", "127.0.0.2", True),
        ("127.0.0.1", "::1", True),
        ("127.0.0.1", "::ffff:127.8.9.10", True),
        (None, "127.0.0.1", False),
        (None, None, True),
    ],
)
def test_client_is_the_address_or_subnet_without_a_key(one: str | None, other: str | None, same: bool) -> None:
    assert (client_of(one) == client_of(other)) is same
    assert OPEN.identify(one, "").client == client_of(one)
    assert OPEN.identify(one, "a").name != OPEN.identify(one, "b").name


@pytest.mark.parametrize(
    ("names", "key", "insecure"),
    [(VERIFIER, "VERIFIER_API_KEY", "VERIFIER_INSECURE"), (DRAFTER, "DRAFTER_SERVE_KEY", "DRAFTER_INSECURE")],
    ids=["verifier", "drafter"],
)
def test_each_service_names_its_own_settings(names: ServiceNames, key: str, insecure: str) -> None:
    assert Access(KeyStore("k"), names=names).warning() is None
    unkeyed = Access(KeyStore(), names=names)
    assert f"no {key} is set" in str(unkeyed.warning()) and names.service in str(unkeyed.warning())
    assert f"{insecure} is set and there is no key" in str(Access(KeyStore(), True, names).warning())
    with pytest.raises(Forbidden, match=f"this {names.service} has no key.*{key}=<key>.*{insecure}=1"):
        unkeyed.identify("203.0.113.9", "")
    with pytest.raises(Unauthorized, match=f"this {names.service} wants its key"):
        Access(KeyStore("k"), names=names).identify("127.0.0.1", "")
    with pytest.raises(Unauthorized, match=f"this {names.service} does not take the key that was sent") as refused:
        Access(KeyStore("k"), names=names).identify("127.0.0.1", "Bearer s3cret")
    assert "s3cret" not in str(refused.value)


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


def test_a_new_key_is_taken_at_once_and_a_removed_one_refused_within_a_second(path: Path, clock: Clock) -> None:
    add(path, "old")
    store = KeyStore(None, path, clock)
    add(path, "new")
    clock.now = 0.5
    assert store.find("new") is not None
    key_file.remove(path, "name-old")
    clock.now = 1.4
    assert store.find("old") is not None
    clock.now = 1.5
    assert store.find("old") is None and store.find("new") is not None


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
