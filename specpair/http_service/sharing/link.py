"""The link by which a machine joins: `specpair://HOST:PORT/`, a certificate's fingerprint and a one-time token.

The fingerprint lets the guest recognise the host before it sends the token, as with kubeadm and k3s.
"""

import hashlib
import re
import secrets
import ssl
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

SCHEME = "specpair://"
_BYTES = 16  # of the fingerprint, and of the token: 128 bits each
_SIGNS = 22  # of each in base64url
_LINK = re.compile(
    rf"{SCHEME}(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[\w.-]+):(?P<port>\d{{1,5}})/(?P<rest>[\w-]*)/?", re.ASCII | re.IGNORECASE
)


class BadLink(ValueError):
    """A text is no link. The message quotes nothing of the secret part."""


class JoinLink(NamedTuple):
    """Where a host listens, how to recognise it, and the token that it takes once."""

    host: str  # a name or an address, IPv6 without brackets
    port: int
    fingerprint: bytes  # of the host's certificate, 16 bytes
    token: bytes  # 16 bytes

    def __str__(self) -> str:
        return f"{SCHEME}{address_text(self.host, self.port)}/{written(self.fingerprint)}{written(self.token)}"

    def __repr__(self) -> str:  # without the token: it must not get into logs
        return f"JoinLink({self.host!r}, {self.port})"


def address_text(host: str, port: int) -> str:
    """HOST:PORT as in a URL, IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_link(text: str) -> JoinLink:
    """The link that a text has, perhaps with spaces and line breaks from a terminal. Raises BadLink."""
    text = re.sub(r"\s+", "", text)
    if not text.lower().startswith(SCHEME):
        raise BadLink(f"a link begins with {SCHEME}: copy the whole line that the host printed")
    if (found := _LINK.fullmatch(text)) is None or not 0 < int(found["port"]) < 65536:
        raise BadLink(f"the link does not have the form {SCHEME}HOST:PORT/…: copy the whole line that the host printed")
    rest = found["rest"]
    if len(rest) != 2 * _SIGNS:
        raise BadLink(
            f"the link has {len(rest)} characters behind the last slash instead of {2 * _SIGNS}: copy all of it"
        )
    return JoinLink(found["host"].strip("[]"), int(found["port"]), read_value(rest[:_SIGNS]), read_value(rest[_SIGNS:]))


def new_token() -> bytes:
    return secrets.token_bytes(_BYTES)


def fingerprint(pem: str) -> bytes:
    """The fingerprint of a certificate: the first half of its SHA-256."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).digest()[:_BYTES]


def written(value: bytes) -> str:
    """A fingerprint or a token in base64url."""
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def read_value(text: str) -> bytes:
    """A fingerprint or a token. Raises BadLink."""
    try:
        value = urlsafe_b64decode(text + "==")
    except ValueError:
        value = b""
    if len(value) != _BYTES or written(value) != text:  # the last character has four bits that no value uses
        raise BadLink("the link was changed on its way: copy the whole line that the host printed")
    return value
