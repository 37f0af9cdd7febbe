"""What a shared service announces on the local network, for how long, and that it is found there."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pytest
import zeroconf

from specpair.http_service.keys import key_file
from specpair.http_service.keys.key_file import KeyLimits, StoredKey, digest_of, new_key
from specpair.http_service.sharing import lan
from specpair.http_service.sharing import share as share_module
from specpair.http_service.sharing.lan import LanError, Seen, announced, look, record
from specpair.http_service.sharing.link import fingerprint, written
from specpair.http_service.sharing.share import Share

PATIENCE = 20.0  # seconds
HERE = ["127.0.0.1"]


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Share:
    monkeypatch.setattr(share_module, "own_addresses", lambda: HERE)
    made = Share("verifier", tmp_path)
    made.prepare()
    made.port = 8000
    return made


def pin(share: Share) -> str:
    return written(fingerprint(share.anchor_pem))


def test_an_announcement_holds_the_fingerprint_and_no_secret(share: Share) -> None:
    token, key = share.invitations.invite(), new_key()
    key_file.add(share.keys, StoredKey("anna", digest_of(key), KeyLimits()))
    info = record(share, "bigbox.example.org", ["192.0.2.7", "2001:db8::7"])
    assert info.text == b"\x10service=verifier" + b"\x1apin=" + pin(share).encode()
    assert (info.name, info.port) == ("bigbox._specpair._tcp.local.", 8000)
    said = info.text + info.name.encode() + str(info.server).encode()
    secrets = [token, written(token).encode(), key.encode(), digest_of(key), b"anna", b"model"]
    assert not [each for each in secrets if each in said]


def test_a_service_is_found_on_the_local_network_while_it_is_announced(share: Share) -> None:
    """By real packets, which do not leave this machine."""
    expected = Seen("bigbox", "verifier", pin(share), ("127.0.0.1:8000",))
    with announced(share, "bigbox"):
        seen = next(each for each in look(PATIENCE, HERE) if each.pin == expected.pin)
        assert seen._replace(name="bigbox") == expected and seen.name.startswith("bigbox")  # or bigbox-2


class Network:
    """In place of `announcement`: notes when one begins and ends."""

    def __init__(self) -> None:
        self.noted: Queue[str] = Queue()
        self.error: LanError | None = None

    @contextmanager
    def __call__(self, _share: Share, host: str, addresses: Sequence[str]) -> Iterator[None]:
        self.noted.put(f"{host} {' '.join(addresses)}")
        if self.error is not None:
            raise self.error
        try:
            yield
        finally:
            self.noted.put("end")


def test_an_announcement_follows_the_addresses_and_ends_when_sharing_does(
    share: Share, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network()
    monkeypatch.setattr(lan, "announcement", network)

    def noted(count: int) -> list[str]:
        return [network.noted.get(timeout=PATIENCE) for _ in range(count)]

    with announced(share, "bigbox", 0.001):
        assert noted(1) == ["bigbox 127.0.0.1"]
        monkeypatch.setattr(share_module, "own_addresses", lambda: ["192.0.2.7"])
        assert noted(2) == ["end", "bigbox 192.0.2.7"]
        share.unshare()
        assert noted(1) == ["end"]
        network.error = LanError("No route to host")
        share.prepare()
        assert noted(1) == ["bigbox 192.0.2.7"]
        network.error = None
        monkeypatch.setattr(share_module, "own_addresses", lambda: HERE)
        assert noted(1) == ["bigbox 127.0.0.1"]
    assert noted(1) == ["end"] and network.noted.empty()
    warned = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert warned == ["this service is not announced on the local network: No route to host"]


def test_without_the_package_nothing_is_announced_and_a_search_names_the_extra(
    share: Share, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network()
    monkeypatch.setattr(lan, "announcement", network)
    with announced(None, "not shared", 0.001):
        monkeypatch.setattr(lan, "find_spec", lambda _: None)
    with announced(share, "bigbox", 0.001), pytest.raises(LanError, match=r"zeroconf is not installed: .*\[lan\]"):
        next(look(PATIENCE))
    assert network.noted.empty() and not caplog.records


def test_what_cannot_be_sent_is_logged_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def opened(*_: object) -> object:
        error = OSError(65, "No route to host")
        logging.getLogger("zeroconf").warning("Error with socket %d: %s", 7, error, exc_info=error)
        raise error

    monkeypatch.setattr(zeroconf, "Zeroconf", opened)
    with pytest.raises(LanError, match="No route to host"):
        next(look(PATIENCE))
    (line,) = caplog.records
    assert line.getMessage() == "on the local network: Error with socket 7: [Errno 65] No route to host"
    assert line.exc_info is None
