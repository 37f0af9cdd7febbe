"""The certificate of a service: checked at the start, read again when its files change, and when it ends."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from specpair.command_line.setting_values import SettingsError

LOOK_EVERY = 5.0  # seconds between two looks at the files
_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL, to which `ssl` gives no name
_log = logging.getLogger("specpair.service")


class Certificate:
    """A certificate with its key, in one file or two."""

    def __init__(self, certfile: Path, keyfile: Path | None, key: Callable[[str], str] = str) -> None:
        """`key`: the name by which a setting was given. Raises SettingsError for files that no service can use."""
        self.certfile, self.keyfile, self._key = certfile, keyfile, key
        self._paths = [certfile] if keyfile is None else [certfile, keyfile]
        self._read = self._files()  # as they were when they were read last
        self.ends = self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # Unix time

    @property
    def options(self) -> dict[str, Any]:
        """The settings of uvicorn that name it."""
        return {"ssl_certfile": self.certfile, "ssl_keyfile": self.keyfile, "ssl_keyfile_password": ""}

    async def renew(self, context: ssl.SSLContext, every: float = LOOK_EVERY) -> None:
        """Load the files into `context` whenever they change, for ever. New connections use what was loaded last.

        The two files may change one after the other, so they are read once they have stayed the same for `every`
        seconds. Files that cannot be used are logged, and the certificate before them stays.
        """
        self._warn_if_expired()
        seen = self._read
        while True:
            await asyncio.sleep(every)
            before, seen = seen, self._files()
            if seen == self._read or seen != before:
                continue
            self._read = seen
            try:
                self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # a failure could leave half of it in `context`
                self.ends = self._load(context)
            except SettingsError as error:
                _log.error("the certificate is not renewed, the one before it stays in use: %s", error)
            else:
                _log.info("the certificate in %s was renewed", self.certfile)
                self._warn_if_expired()

    def _warn_if_expired(self) -> None:
        if self.ends < time.time():
            end = datetime.fromtimestamp(self.ends, UTC).date()
            _log.warning("the certificate in %s expired on %s: clients will refuse it", self.certfile, end)

    def _load(self, context: ssl.SSLContext) -> float:
        """Load the files into a server's context. Returns the certificate's end. Raises SettingsError."""
        try:
            for path in self._paths:
                path.open("rb").close()  # its error names the file, that of the next line does not
            context.load_cert_chain(self.certfile, self.keyfile, password="")  # else OpenSSL asks on the terminal
            return _end_of(self.certfile, context)
        except ssl.SSLError as error:
            files, why = " and ".join(map(str, self._paths)), f" ({error.reason})" if error.reason else ""
            content = b"".join(path.read_bytes() for path in self._paths)
            if b"ENCRYPTED" in content:
                raise SettingsError(f"{files}: the key has a password: give a copy without one") from None
            if b"BEGIN CERTIFICATE" in content and b"PRIVATE KEY" not in content:
                raise SettingsError(
                    f"{files}: the key is missing: name its file by {self._key('ssl_keyfile')}"
                ) from None
            raise SettingsError(f"{files}: expected a PEM certificate and its key, without a password{why}") from None
        except OSError as error:
            raise SettingsError(f"{error.filename}: {error.strerror}") from None

    def _files(self) -> list[tuple[int, int, int] | None]:
        """What differs after a change of the files. None: there is no such file."""
        found: list[tuple[int, int, int] | None] = []
        for path in self._paths:
            try:
                stat = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
        return found


def certificate_of(certfile: Path | None, keyfile: Path | None, key: Callable[[str], str]) -> Certificate | None:
    """The certificate that the settings `ssl_certfile` and `ssl_keyfile` name; None: they name none.

    `key`: the name by which a setting was given.

    Raises SettingsError.
    """
    if certfile is None:
        if keyfile is not None:
            missing = f"the certificate of this key is missing: set {key('ssl_certfile')}, too"
            raise SettingsError(f"{key('ssl_keyfile')}: {missing}")
        return None
    try:
        return Certificate(certfile, keyfile, key)
    except SettingsError as error:
        raise SettingsError(f"{key('ssl_certfile')}: {error}") from None


def _end_of(certfile: Path, server: ssl.SSLContext) -> float:
    """When the certificate of a server's context ends, as Unix time. Raises ssl.SSLError if no client can use it.

    `ssl` shows the fields of a certificate that a peer has sent. So a client shakes hands with the server here.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    client.load_verify_locations(certfile)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    shaking = [*ends]
    while shaking:
        for end in [*shaking]:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            shaking.remove(end)
    found = ends[0].getpeercert()
    assert found is not None  # the client has verified it
    return float(ssl.cert_time_to_seconds(str(found["notAfter"])))
