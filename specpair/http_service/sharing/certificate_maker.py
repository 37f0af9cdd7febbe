"""Makes the certificates of a shared service: the anchor, which guests pin, and later ones, which its key signs.

Guests trust the anchor alone, so a renewed certificate needs nothing of them. Only this module needs the package
`cryptography`, and only a service that shares imports it.
"""

import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specpair.shared_files import PRIVATE, replacing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate as X509  # noqa: N814 - `Certificate` is ours
YEARS = 10  # a guest's pin ends with the anchor
_YESTERDAY = timedelta(days=1)  # a guest's clock may be behind


def make_anchor(anchor: Path, path: Path) -> None:
    """Write a new key and its self-signed certificate to two files of the owner alone: the anchor, and what a service
    shows until `renew`. Raises OSError."""
    key, certificate = _made(None)
    for each in (path, anchor):
        _write(each, key, certificate)


def renew(anchor: Path, path: Path) -> None:
    """Write a new key to `path`, and its certificate, signed by the anchor's key. Raises OSError and ValueError."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificate

    content = anchor.read_bytes()
    signer: Any = load_pem_private_key(content, None)
    root = load_pem_x509_certificate(content[content.index(b"-----BEGIN CERTIFICATE") :])
    key, certificate = _made((signer, root))
    _write(path, key, certificate, root)


def _made(signer: "tuple[EllipticCurvePrivateKey, X509] | None") -> "tuple[EllipticCurvePrivateKey, X509]":
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    issuing, root = signer or (key, None)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"specpair on {socket.gethostname()}"[:64])])
    now = datetime.now(UTC)
    ends = now + timedelta(days=365 * YEARS) if root is None else root.not_valid_after_utc
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"), False
    ) | dict.fromkeys(("encipher_only", "decipher_only"), False)
    # Python 3.13 checks strictly: it wants the key's identifiers, and the constraints to be critical.
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if root is None else root.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _YESTERDAY)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(root is None, 0 if root is None else None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, key_cert_sign=root is None, **usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuing.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("specpair")]), critical=False)
    )
    return key, built.sign(issuing, hashes.SHA256())


def _write(path: Path, key: "EllipticCurvePrivateKey", *chain: "X509") -> None:
    from cryptography.hazmat.primitives import serialization

    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with replacing(path, PRIVATE) as file:
        file.write(private + b"".join(each.public_bytes(pem) for each in chain))
