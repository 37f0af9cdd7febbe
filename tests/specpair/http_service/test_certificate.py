"""The certificate of a service: checked at the start, renewed while it serves, and its end in the metrics."""

import asyncio
import logging
import os
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from specpair.command_line.setting_values import SettingsError
from specpair.http_service.certificate import Certificate, certificate_of
from specpair.http_service.observability.metrics import RequestMetrics

EVERY = 0.01
FIRST, SECOND = datetime(2040, 1, 1, tzinfo=UTC), datetime(2041, 1, 1, tzinfo=UTC)
AUTHORITY = trustme.CA()


def issue(folder: Path, ends: datetime = FIRST) -> tuple[Path, Path]:
    """Write a new certificate and its key."""
    made = AUTHORITY.issue_cert("localhost", not_after=ends)
    return write(folder, "server.pem", made.cert_chain_pems[0].bytes()), write(
        folder, "server.key", made.private_key_pem.bytes()
    )


def write(folder: Path, name: str, content: bytes) -> Path:
    """Replace a file at once, as programs that renew certificates do."""
    (folder / "new").write_bytes(content)
    os.replace(folder / "new", folder / name)
    return folder / name


async def served_end(context: ssl.SSLContext) -> str:
    """When the certificate ends that a server with this context shows to a new client."""
    async with await asyncio.start_server(lambda _, writer: writer.close(), "localhost", 0, ssl=context) as server:
        trusting = ssl.create_default_context()
        AUTHORITY.configure_trust(trusting)
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("localhost", port, ssl=trusting)
        shown = writer.get_extra_info("peercert")["notAfter"]
        writer.close()
        await writer.wait_closed()
    return str(shown)


async def renewing(certificate: Certificate, context: ssl.SSLContext, log: pytest.LogCaptureFixture) -> str:
    """The next line of the log after the files have changed."""
    already = len(log.records)
    task = asyncio.create_task(certificate.renew(context, EVERY))
    async with asyncio.timeout(20):
        while len(log.records) == already:
            await asyncio.sleep(EVERY)
    task.cancel()
    return log.records[already].getMessage()


def context_of(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certfile, certificate.keyfile)
    return context


def test_new_connections_get_a_renewed_certificate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        certificate = Certificate(*issue(tmp_path))
        metrics = RequestMetrics(lambda: "m")
        metrics.certificate_ends(certificate)
        context = context_of(certificate)
        assert "2040" in await served_end(context)
        issue(tmp_path, SECOND)
        assert "was renewed" in await renewing(certificate, context, caplog)
        assert "2041" in await served_end(context)
        assert metrics.registry.get_sample_value("specpair_tls_certificate_not_after_seconds") == SECOND.timestamp()

    caplog.set_level(logging.INFO, "specpair.service")
    asyncio.run(run())


@pytest.mark.parametrize("broken", ["server.pem", "server.key"])
def test_the_certificate_before_stays_while_new_files_cannot_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    async def run() -> None:
        certificate = Certificate(*issue(tmp_path))
        context = context_of(certificate)
        issue(tmp_path, SECOND)
        kept = (tmp_path / broken).read_bytes()
        write(tmp_path, broken, b"half")
        assert "is not renewed, the one before it stays in use" in await renewing(certificate, context, caplog)
        assert "2040" in await served_end(context) and certificate.ends == FIRST.timestamp()
        write(tmp_path, broken, kept)
        assert "was renewed" in await renewing(certificate, context, caplog)
        assert "2041" in await served_end(context) and certificate.ends == SECOND.timestamp()

    caplog.set_level(logging.INFO, "specpair.service")
    asyncio.run(run())


def test_the_end_of_a_certificate_in_the_past_is_known_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended, said = datetime(2020, 1, 1, tzinfo=UTC), "expired on 2020-01-01: clients will refuse it"

    async def run() -> None:
        certificate = Certificate(*issue(tmp_path, ended))
        assert certificate.ends == ended.timestamp()
        assert said in await renewing(certificate, context_of(certificate), caplog)
        certificate = Certificate(*issue(tmp_path))
        context = context_of(certificate)
        issue(tmp_path, ended)
        assert "was renewed" in await renewing(certificate, context, caplog) and said in caplog.messages[-1]

    caplog.set_level(logging.INFO, "specpair.service")
    asyncio.run(run())


def test_one_file_may_hold_both(tmp_path: Path) -> None:
    certfile, keyfile = issue(tmp_path)
    both = write(tmp_path, "both.pem", certfile.read_bytes() + keyfile.read_bytes())
    assert Certificate(both, None).ends == FIRST.timestamp()


def test_files_that_no_service_can_use_are_refused_by_the_setting_s_name(tmp_path: Path) -> None:
    certfile, keyfile = issue(tmp_path)
    (tmp_path / "other").mkdir()
    _, other_key = issue(tmp_path / "other")
    missing = tmp_path / "none.pem"
    locked = write(tmp_path, "locked.key", keyfile.read_bytes().replace(b"BEGIN ", b"BEGIN ENCRYPTED "))
    refused: list[tuple[tuple[Path | None, Path | None], str]] = [
        ((missing, keyfile), f"ssl_certfile: {missing}: No such file"),
        ((certfile, missing), f"ssl_certfile: {missing}: No such file"),
        ((certfile, other_key), "ssl_certfile: .*KEY_VALUES_MISMATCH"),
        ((keyfile, keyfile), "ssl_certfile: .*expected a PEM certificate and its key"),
        ((tmp_path, None), "ssl_certfile: "),
        ((certfile, None), "ssl_certfile: .*the key is missing: name its file by ssl_keyfile"),
        ((certfile, locked), "ssl_certfile: .*the key has a password"),
        ((None, keyfile), "ssl_keyfile: .* set ssl_certfile, too"),
    ]
    for given, said in refused:
        with pytest.raises(SettingsError, match=said):
            certificate_of(*given, str)
    assert certificate_of(None, None, str) is None
