"""Whose certificates a client takes: those of a pinned host and its renewals, and the system's, read once."""

import os
import ssl
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import trustme

from drafter_client import Pair
from drafter_client.errors import BadOption, BadUrl, VerifierUnreachable
from drafter_client.http.connection import HttpConnection
from drafter_client.http.trust import SYSTEM, Trust
from tests.drafter_client.http.raw_server import Peer, answering, over_tls

HOST, OTHER = trustme.CA(path_length=0), trustme.CA(path_length=0)
PEM = HOST.cert_pem.bytes().decode()
PIN = Trust(PEM)
REJOIN = rf"the host that you joined \(pin {PIN.fingerprint}\): if .* a new link .*; else another machine has"
NOW, DAY = datetime.now(UTC), timedelta(days=1)


def _itself(host: trustme.CA) -> ssl.SSLContext:
    """The settings of a server that shows a host's first certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with trustme.Blob(host.private_key_pem.bytes() + host.cert_pem.bytes()).tempfile() as file:
        context.load_cert_chain(file)
    return context


def _later(host: trustme.CA, begins: timedelta = -DAY) -> ssl.SSLContext:
    """The settings of a server that shows a certificate for two days, signed by the key of a host's first one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made = host.issue_cert("specpair", not_before=NOW + begins, not_after=NOW + begins + 2 * DAY)
    made.configure_cert(context)
    return context


def _ask(host: str, port: int, trust: Trust) -> object:
    with closing(HttpConnection(f"https://{host}:{port}", trust=trust)) as connection:
        return connection.exchange("POST", "/x", b"[7]", [], 10.0).json()


def test_a_pin_takes_the_certificate_and_what_its_key_has_signed() -> None:
    PIN.context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 has it by default
    for shown in (_itself(HOST), _later(HOST), _later(HOST)):
        for host in ("localhost", "127.0.0.1"):
            with answering(over_tls(shown)) as server:
                assert _ask(host, server.port, PIN) == [7]


@pytest.mark.parametrize(
    ("shown", "advice"),
    [
        (_itself(OTHER), f"shows another certificate than {REJOIN}"),
        (_later(OTHER), f"shows another certificate than {REJOIN}"),
        (_later(HOST, -3 * DAY), "has expired.*: renew its certificate there"),
        (_later(HOST, DAY), "not yet valid.*: is the clock of this machine right"),
        (None, f"does not speak TLS, unlike {REJOIN}"),
    ],
    ids=["another's", "signed by another's", "ended", "not begun", "no TLS"],
)
def test_what_a_pin_refuses_is_told_with_pin_host_and_remedy(
    monkeypatch: pytest.MonkeyPatch, shown: ssl.SSLContext | None, advice: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "none.pem")

    def plain(peer: Peer) -> None:
        peer.connection.recv(1)  # of a handshake
        peer.reply(b"", "400 Bad Request")

    with (
        answering(plain if shown is None else over_tls(shown)) as server,
        pytest.raises(VerifierUnreachable, match=rf"https://127.0.0.1:\d+ .*{advice}") as caught,
    ):
        _ask("127.0.0.1", server.port, PIN)
    assert "SSL_CERT_FILE" not in str(caught.value) and "http:" not in str(caught.value)
    assert not server.requests


@pytest.mark.parametrize("pin", ["no PEM", PEM.replace("-\n", "-\né", 1), PEM.replace("-\nMII", "-\nAAA"), PEM[:300]])
def test_a_pin_that_is_no_certificate_is_refused(pin: str) -> None:
    with pytest.raises(BadOption, match="must be its certificate in PEM"):
        Trust(pin)


def test_a_pinned_host_is_asked_by_tls_of_our_own_alone() -> None:
    with pytest.raises(BadUrl, match=r"http://bigbox:8443 .* write https://"):
        HttpConnection("bigbox:8443", trust=PIN)
    given = httpx.MockTransport(lambda _: httpx.Response(500))
    with pytest.raises(BadOption, match="leave out either trust or transport"):
        Pair("https://bigbox", None, trust=PIN, transport=given)


def test_settings_of_tls_are_made_once_and_again_when_the_system_s_certificates_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Trust(PEM).context is PIN.context is not SYSTEM.context
    file = tmp_path / "ca.pem"
    file.write_text(PEM)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    before = SYSTEM.context
    assert Trust().context is before and len(before.get_ca_certs()) == 1
    file.write_text(PEM + OTHER.cert_pem.bytes().decode())
    os.utime(file, (0, 0))
    assert Trust().context is SYSTEM.context is not before and len(SYSTEM.context.get_ca_certs()) == 2
