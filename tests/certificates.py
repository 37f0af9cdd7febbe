"""Certificates as a host that is shared makes them for itself: the first signs itself, and those that replace it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

DAY = timedelta(days=1)
_OTHER_USES = (
    *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"),
    *("encipher_only", "decipher_only"),
)


@dataclass(frozen=True)
class HostCertificate:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def file(self) -> bytes:
        """The content of a file with the certificate and its key."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return self.pem.encode() + key


def made(signer: HostCertificate | None = None, begins: timedelta = -DAY, ends: timedelta = DAY) -> HostCertificate:
    """A certificate with a new key. `signer`: the host's first one; None: this is it. `begins`, `ends`: from now on."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    first = signer is None
    signing = key if signer is None else signer.key
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "specpair")])
    usage = x509.KeyUsage(digital_signature=True, key_cert_sign=first, **dict.fromkeys(_OTHER_USES, False))
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now + begins, now + ends)
    made = made.add_extension(x509.BasicConstraints(ca=first, path_length=0 if first else None), critical=True)
    made = made.add_extension(usage, critical=True)
    made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    return HostCertificate(made.add_extension(issuer, critical=False).sign(signing, SHA256()), key)
