"""The way to the verifier: proxies with passwords, SOCKS, certificates, and transports that the user gives."""

import re
import ssl
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
import trustme

from drafter_client import Lookup, Mode, Options, Pair
from drafter_client.errors import BadReply, BadUrl, ConnectionLost, VerifierUnreachable
from drafter_client.http.addresses import proxy_for
from drafter_client.http.client import VerifierClient
from drafter_client.http.connection import HttpConnection
from tests.drafter_client.http.raw_server import Peer, answering, echo, over_tls
from tests.drafter_client.support import Verifier

Script = Callable[[Peer], None]
BASIC = b"Basic bWU6c2VjcmV0"  # me:secret


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names the certificate of `authority`."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))


def _ask(connection: HttpConnection) -> object:
    return connection.exchange("POST", "/x", b"[7]", [], 10.0).json()


def _over_tls(
    authority: trustme.CA, script: Script = echo, *, asks_certificate: bool = False, not_after: datetime | None = None
) -> Script:
    """`script` on the encrypted connection of a server called localhost or verifier.invalid."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "verifier.invalid", not_after=not_after).configure_cert(context)
    if asks_certificate:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return over_tls(context, script)


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_loopback_never_goes_through_a_proxy(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")  # a port that nothing listens on
    for host in ("127.0.0.1", "localhost"):
        with answering(echo) as server, closing(HttpConnection(f"http://{host}:{server.port}")) as sender:
            assert _ask(sender) == [7]


def test_other_hosts_go_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(echo) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        with closing(HttpConnection("http://verifier.invalid:8000/base")) as sender:
            assert _ask(sender) == [7]
    assert proxy.requests[0].line == "POST http://verifier.invalid:8000/base/x HTTP/1.1"
    with answering(echo) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        with closing(HttpConnection("http://[2001:db8::1]")) as sender:
            _ask(sender)
    assert proxy.requests[0].line == "POST http://[2001:db8::1]/x HTTP/1.1"
    assert b"\r\nHost: [2001:db8::1]\r\n" in proxy.requests[0].head


@pytest.mark.usefixtures("trusted")
def test_tls_goes_through_a_tunnel_of_the_proxy(authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    def tunnel(peer: Peer) -> None:
        asked = peer.read()
        assert asked is not None and asked.line == "CONNECT verifier.invalid:443 HTTP/1.1"
        assert b"\r\nProxy-Authorization: " + BASIC + b"\r\n" in asked.head
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        _over_tls(authority)(peer)

    with answering(tunnel) as proxy:
        monkeypatch.setenv("https_proxy", f"http://me:secret@127.0.0.1:{proxy.port}")
        with closing(HttpConnection("https://verifier.invalid")) as connection:
            assert [_ask(connection) for _ in range(3)] == [[7]] * 3
    assert [each.line for each in proxy.requests[1:]] == ["POST /x HTTP/1.1"] * 3
    assert b"Proxy-Authorization" not in proxy.requests[1].head


def test_a_refusal_of_the_proxy_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(peer: Peer) -> None:
        peer.read()
        peer.reply(b"", "407 Proxy Authentication Required")

    with answering(refuse) as proxy:
        monkeypatch.setenv("https_proxy", f"http://me:wrong@127.0.0.1:{proxy.port}")
        words = rf"through the proxy 127.0.0.1:{proxy.port} \(407 Proxy Authentication Required\)"
        connection = HttpConnection("https://verifier.invalid")
        with closing(connection), pytest.raises(VerifierUnreachable, match=words):
            _ask(connection)


def _socks(peer: Peer) -> None:
    """A SOCKS5 proxy that wants user and password, in front of a server that echoes."""

    def read(count: int) -> bytes:
        return peer.file.read(count)

    assert read(3) == b"\x05\x01\x02"
    peer.send(b"\x05\x02")
    assert read(11) == b"\x01\x02me\x06secret"
    peer.send(b"\x01\x00")
    assert read(5) == b"\x05\x01\x00\x03\x10" and read(18) == b"verifier.invalid\x1f\x40"
    peer.send(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
    echo(peer)


def test_a_socks_proxy_is_used_with_user_and_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(_socks) as proxy:
        monkeypatch.setenv("all_proxy", f"socks5://me:secret@127.0.0.1:{proxy.port}")
        with closing(HttpConnection("http://verifier.invalid:8000")) as connection:
            assert _ask(connection) == [7]
    assert proxy.requests[0].line == "POST /x HTTP/1.1"


@pytest.mark.parametrize("password", ["sEcReT#x", "sEc/ReT", "sEc?ReT", "12/sEcReT"])
def test_a_password_that_breaks_the_address_of_a_proxy_is_not_shown(
    password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", f"http://me:{password}@proxy:9")
    with pytest.raises(BadUrl, match="%23 %2F %3F %40") as caught:
        proxy_for(httpx.URL("https://bigbox"))
    assert not {"sEc", "ReT", "12"} & set(re.split(r"\W", str(caught.value)))
    assert caught.value.__cause__ is None and "proxy:9" in str(caught.value)


def test_an_address_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(BadUrl, match="--api-key") as caught:
        HttpConnection("http://me:sEcReT@bigbox")
    assert "sEcReT" not in str(caught.value)


def test_a_proxy_that_asks_for_a_password_is_reported() -> None:
    asking = httpx.MockTransport(lambda _: httpx.Response(407))
    with pytest.raises(VerifierUnreachable, match="the proxy on the way to http://v asks for a user and a password"):
        VerifierClient("http://v", transport=asking).model()


@pytest.mark.usefixtures("trusted")
def test_the_environment_names_an_authority_for_certificates(authority: trustme.CA) -> None:
    with (
        answering(_over_tls(authority)) as server,
        closing(HttpConnection(f"https://localhost:{server.port}")) as connection,
    ):
        connection.connect()
        assert [_ask(connection) for _ in range(2)] == [[7]] * 2
        counted = connection.traffic.sent, connection.traffic.received
    assert counted == (server.received, server.sent)


@pytest.mark.usefixtures("trusted")
def test_a_certificate_is_checked_by_the_name_not_by_the_address_that_is_taken(authority: trustme.CA) -> None:
    """A name may have several addresses, each of another verifier."""
    with (
        answering(_over_tls(authority)) as server,
        closing(HttpConnection(f"https://verifier.invalid:{server.port}", at="127.0.0.1")) as connection,
    ):
        assert _ask(connection) == [7]
    with (
        answering(_over_tls(authority)) as server,
        closing(HttpConnection(f"https://another.invalid:{server.port}", at="127.0.0.1")) as connection,
        pytest.raises(VerifierUnreachable, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        _ask(connection)


@pytest.mark.parametrize(
    ("trusts", "host", "ended", "advice"),
    [
        ("", "localhost", False, "name the file of its CA in SSL_CERT_FILE"),
        ("none.pem", "localhost", False, r"SSL_CERT_FILE names .*none.pem \(No such file or directory\)"),
        ("empty.pem", "localhost", False, "SSL_CERT_FILE names .*empty.pem, which holds no certificate in PEM"),
        ("other.pem", "localhost", False, "no CA in .*other.pem, which SSL_CERT_FILE names, has signed"),
        ("ca.pem", "127.0.0.1", False, "its certificate is for other names"),
        ("ca.pem", "localhost", True, "has expired.*: renew its certificate"),
    ],
)
def test_a_certificate_that_is_refused_is_reported_with_what_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusts: str, host: str, ended: bool, advice: str
) -> None:
    authority = trustme.CA()
    for name, content in (("ca", authority), ("other", trustme.CA())):
        content.cert_pem.write_to_path(str(tmp_path / f"{name}.pem"))
    (tmp_path / "empty.pem").write_text("no PEM")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if trusts:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / trusts))
    secured = _over_tls(authority, not_after=datetime(2020, 1, 1, tzinfo=UTC) if ended else None)
    with (
        answering(secured) as server,
        closing(HttpConnection(f"https://{host}:{server.port}")) as connection,
        pytest.raises(VerifierUnreachable, match=f"CERTIFICATE_VERIFY_FAILED.*{advice}"),
    ):
        _ask(connection)


@pytest.mark.usefixtures("trusted")
def test_a_verifier_that_asks_for_a_certificate_is_reported(authority: trustme.CA) -> None:
    with (
        answering(_over_tls(authority, asks_certificate=True)) as server,
        closing(HttpConnection(f"https://localhost:{server.port}")) as connection,
        pytest.raises(ConnectionLost, match=r"it asks its clients for a certificate|EOF occurred"),
    ):
        _ask(connection)


def test_a_server_that_expects_tls_is_reported_with_https(authority: trustme.CA) -> None:
    with (
        answering(_over_tls(authority)) as server,
        closing(HttpConnection(server.url)) as connection,
        pytest.raises(ConnectionLost, match="if it speaks TLS, write https://"),
    ):
        _ask(connection)


def test_a_server_without_tls_is_reported_with_http() -> None:
    def plain(peer: Peer) -> None:
        peer.connection.recv(1)  # of a handshake
        peer.reply(b"", "400 Bad Request")

    with (
        answering(plain) as server,
        closing(HttpConnection(f"https://127.0.0.1:{server.port}")) as connection,
        pytest.raises(VerifierUnreachable, match="does not speak TLS, write http:// instead of https://"),
    ):
        _ask(connection)


def test_a_pair_sends_all_requests_over_the_transport_that_it_was_given(verifier: Verifier) -> None:
    paths: list[str] = []
    streams: list[bool] = []

    def passed_on(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        streams.append("event-stream" in request.headers.get("Accept", ""))
        return inner.handle_request(request)

    with httpx.HTTPTransport() as inner:
        given = httpx.MockTransport(passed_on)
        for lockstep in (True, False):
            with Pair(verifier.url, Lookup(), transport=given) as pair:
                options = Options(max_tokens=40, temperature=0.0, lockstep=lockstep, mode=Mode.REMOTE)
                stats = pair.generate("import", options).read().stats
            assert len(stats.token_ids) == 40 and stats.bytes_sent > 40 and stats.bytes_received > 400
        assert {"/health", "/model", "/vocabulary", "/prefill", "/verify"} <= set(paths)
        assert any(streams)
        assert HttpConnection(verifier.url, given).exchange("GET", "/health", None, [], 5.0).status_code == 200
    assert verifier.sessions == 0


def test_a_compressed_response_is_refused() -> None:
    """It may expand to one that takes all memory."""
    body = httpx.ByteStream(b"\x1f\x8b")
    given = httpx.MockTransport(lambda request: httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=body))
    with pytest.raises(BadReply, match="compressed"):
        _ask(HttpConnection("http://v", given))
