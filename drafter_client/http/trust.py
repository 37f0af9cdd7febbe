"""Whose certificates a client takes, and what to do about one that it refuses."""

import functools
import os
import ssl
from dataclasses import dataclass

from drafter_client.errors import BadOption
from specpair.http_service.sharing.link import fingerprint, written

_UNTRUSTED, _NO_TLS = "CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER"
_ADVICE = {  # by what the reason of a failed connection contains, the first that fits
    "mismatch": "its certificate is for other names: ask it by one of those, or issue one for this name",
    "has expired": "renew its certificate there, or set this machine's clock",
    "not yet valid": "is the clock of this machine right?",
    _UNTRUSTED: "if its certificate is your own, name the file of its CA in SSL_CERT_FILE",
    _NO_TLS: "what answers there does not speak TLS, write http:// instead of https://",
}


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose certificates a client takes: those that the system trusts, or those in SSL_CERT_FILE and SSL_CERT_DIR; with
    a `pin`, those of one host alone.

    `pin`: the certificate (PEM) that the host made first. It is taken, and what its key has signed: a renewal needs
        nothing here. Names are not checked, as a host's addresses change.

    Raises BadOption for a pin that is no certificate.
    """

    pin: str = ""

    def __post_init__(self) -> None:
        if self.pin:
            try:
                _pinned(self.pin)
                _ = self.fingerprint
            except (ValueError, TypeError, ssl.SSLError):
                raise BadOption("the pin of a host must be its certificate in PEM") from None

    @property
    def context(self) -> ssl.SSLContext:
        """The settings of TLS, made once for all connections. A system's file of certificates that changes is read
        again."""
        if self.pin:
            return _pinned(self.pin)
        paths = ssl.get_default_verify_paths()  # the variables count
        return _of_system(paths, paths.cafile and os.stat(paths.cafile).st_mtime_ns)

    @property
    def fingerprint(self) -> str:
        """That of the pin, as the link to join the host shows it."""
        return written(fingerprint(self.pin))

    def advice(self, reason: str) -> str:
        """What to do about a connection that failed for this reason; empty: TLS is not the reason."""
        sign = next((each for each in _ADVICE if each in reason), None)
        if sign is None:
            return ""
        if self.pin and sign in (_UNTRUSTED, _NO_TLS):
            shows = "does not speak TLS, unlike" if sign == _NO_TLS else "shows another certificate than"
            return (
                f"what answers there {shows} the host that you joined (pin {self.fingerprint}): if that was set up "
                "anew, join it again with a new link (drafter join LINK); else another machine has this address"
            )
        file = os.environ.get("SSL_CERT_FILE")
        return _wrong_authorities(file) if file and sign == _UNTRUSTED else _ADVICE[sign]


SYSTEM = Trust()


@functools.lru_cache(8)
def _pinned(pin: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=pin)
    return context


@functools.lru_cache(1)
def _of_system(*_: object) -> ssl.SSLContext:
    """The arguments: what differs where the certificates must be read again, which takes some 40 ms."""
    return ssl.create_default_context()


def _wrong_authorities(file: str) -> str:
    """The advice where a certificate is not trusted by those in `file`, which SSL_CERT_FILE names."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except ssl.SSLError:
        return f"SSL_CERT_FILE names {file}, which holds no certificate in PEM: name the file of its CA"
    except OSError as error:
        return f"SSL_CERT_FILE names {file} ({error.strerror}): name the file of its CA"
    return f"no CA in {file}, which SSL_CERT_FILE names, has signed its certificate: name the file of the one that has"
