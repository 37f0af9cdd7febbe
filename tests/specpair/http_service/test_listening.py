"""A service over TLS: a handshake that never comes ends, and a host's own certificate serves clients that pinned it."""

import logging
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from backends.scripted import ScriptedBackend
from drafter_client import DraftModel, Options, Pair, Trust
from specpair.http_service.certificate import Certificate
from specpair.http_service.listening import HANDSHAKE, ListeningServer, configured
from specpair.http_service.sharing.share import Share
from tests.specpair.http_service.serving import config_of, serving
from verifier_server.app import create_app
from verifier_server.settings import Settings

PATIENCE = 20.0  # seconds


@pytest.fixture
def share(tmp_path: Path) -> Share:
    made = Share("verifier", tmp_path)
    made.prepare()
    return made


def half_hello() -> bytes:
    """The first half of what a client sends first."""
    sent, context = ssl.MemoryBIO(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    hello = sent.read()
    return hello[: len(hello) // 2]


@pytest.mark.parametrize("loop", ["auto", "asyncio"])
@pytest.mark.parametrize(
    ("sends", "limit"),
    [(b"", 0.05), (half_hello(), 0.05), (b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n", 60.0)],
    ids=["nothing", "half", "plain HTTP"],
)
def test_a_client_that_does_not_complete_its_handshake_is_closed(
    share: Share, caplog: pytest.LogCaptureFixture, sends: bytes, limit: float, loop: str
) -> None:
    async def never(*_: object) -> None:
        raise AssertionError("a request came")

    certificate = Certificate(share.certificate, None)
    config = config_of(never, loop, ssl_certfile=certificate.certfile)
    with (
        serving(config, lambda config: ListeningServer(config, certificate, limit)) as address,
        socket.create_connection(address, PATIENCE) as client,
    ):
        client.sendall(sends)
        with suppress(ConnectionResetError):
            assert not client.recv(1)  # the end comes; a TimeoutError: it does not
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []
    assert HANDSHAKE == 5.0


def test_a_pair_reaches_a_host_by_its_pin_also_once_its_certificate_was_renewed(
    share: Share, caplog: pytest.LogCaptureFixture
) -> None:
    """Over several addresses: looks at each, health, texts and their streams."""
    caplog.set_level(logging.INFO)
    trust, certificate = Trust(share.anchor_pem), Certificate(share.certificate, None)
    trust.context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 has it by default
    config = configured(create_app(Settings(backend="scripted"), ScriptedBackend()), ssl_certfile=certificate.certfile)
    with serving(config, lambda config: ListeningServer(config, certificate)) as (_, port):
        urls = [f"https://localhost:{port}", f"https://127.0.0.1:{port}"]

        def shown() -> str:
            return ssl.get_server_certificate(("127.0.0.1", port), timeout=PATIENCE)

        def written_text() -> list[int]:
            with Pair(urls, DraftModel(Path("1"), "scripted"), trust=trust) as pair:
                return pair.generate("import", Options(max_tokens=12, seed=3)).read().stats.token_ids

        before = written_text()
        assert config.ssl is not None and shown() == share.anchor_pem
        share.renew()
        config.ssl.load_cert_chain(share.certificate)
        assert written_text() == before and len(before) == 12 and shown() != share.anchor_pem
    assert f"Uvicorn running on https://127.0.0.1:{port} (Press CTRL+C to quit)" in caplog.messages
