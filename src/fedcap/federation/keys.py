"""Keys, certificates and fingerprints: who is who in a federation.

A site is its public key (EC P-384, in OpenSSH format); the private key is made at the site and stays there.
The operator makes a certificate authority and, with it, the server's certificate; sites trust this authority
and no other. People compare fingerprints by telephone: 20 letters and digits, the first 100 bits of a
SHA-256.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID
from pydantic import AfterValidator, model_validator

from fedcap.errors import InputError
from fedcap.federation.audit import bounded
from fedcap.federation.config import AUTHORITY, CERTIFICATE, CERTIFICATE_KEY
from fedcap.federation.plan import ConfigFile
from fedcap.files import aside, write_aside

KEY, PUBLIC_KEY = "key", "key.pub"
AUTHORITY_KEY = "ca.key"
CA_DAYS, SERVER_DAYS = 3650, 820
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Digits and letters without i, l, o and u, which are easily confused with others."""
GROUPS, GROUP = 5, 4
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


# --- Fingerprints


def short_hash(content: bytes) -> str:
    """Return the first 100 bits of the SHA-256 of some bytes, as five groups of four letters and digits."""
    number = int.from_bytes(hashlib.sha256(content).digest(), "big") >> (256 - 5 * GROUPS * GROUP)
    letters = [ALPHABET[number >> 5 * place & 31] for place in reversed(range(GROUPS * GROUP))]
    return "-".join("".join(letters[at : at + GROUP]) for at in range(0, GROUPS * GROUP, GROUP))


def fingerprint(key: bytes | str) -> str:
    """Return the fingerprint of a public key, given in PEM or in OpenSSH format."""
    content = key.encode() if isinstance(key, str) else key
    try:
        is_pem = content.lstrip().startswith(b"-----")
        load = serialization.load_pem_public_key if is_pem else serialization.load_ssh_public_key
        public = load(content)
    except Exception:  # untrusted bytes can break a parser in many ways
        raise InputError("this is not a public key in OpenSSH or PEM format", code="bad-key") from None
    return short_hash(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def certificate_fingerprint(path: Path) -> str:
    """Return the fingerprint of a certificate."""
    return short_hash(read_certificate(path).public_bytes(Encoding.DER))


# --- A site's key and its request to join


def make_key(folder: Path) -> str:
    """Make a site's key pair, `key` and `key.pub`, unless it exists; return its fingerprint."""
    if not (folder / KEY).exists():
        private = ec.generate_private_key(ec.SECP384R1())
        content = private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        write_secret(folder / KEY, content)
        write_aside(folder / PUBLIC_KEY, _openssh(private) + "\n")
    return fingerprint(public_key(folder))


def public_key(folder: Path) -> str:
    """Return a site's public key in OpenSSH format, derived from the private key."""
    content = read_bytes(folder / KEY)
    try:
        return _openssh(serialization.load_ssh_private_key(content, None))
    except Exception:  # another kind of file, or a key with a password
        raise InputError(
            f"{folder / KEY} is not a private key that fedcap federate join made", code="bad-key"
        ) from None


def _openssh(private: Any) -> str:
    return str(private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())


def check_name(name: str) -> str:
    """Return the name of a site; refuse any other text."""
    if not NAME.fullmatch(name):
        raise InputError(
            f"{bounded(name, 60)!r} is not a site's name: up to 40 letters, digits, hyphens",
            code="bad-name",
            field="name",
        )
    return name


class JoinRequest(ConfigFile):
    """A site's request to join, which it sends to the operator."""

    HEADING = (
        "A site's request to join a federation; nothing in it is secret. The operator reads it with fedcap"
        " federate approve. Both sides then compare the fingerprint by telephone."
    )

    name: Annotated[str, AfterValidator(check_name)]
    """The site's name for people."""
    fingerprint: str
    """The fingerprint of the site's key, which is the client's name in the federation."""
    key: Annotated[str, AfterValidator(lambda key: " ".join(key.split()[:2]))]
    """The site's public key, in OpenSSH format."""

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        if fingerprint(self.key) != self.fingerprint:
            raise InputError(
                "the file was changed: its fingerprint is not that of its key", code="changed-request"
            )
        if not self.key.startswith("ecdsa-sha2-nistp384 "):
            raise InputError("the key is not of the kind that fedcap federate join makes", code="bad-key")
        return self


# --- The operator's certificates


def read_certificate(path: Path) -> x509.Certificate:
    """Read the one certificate of a file in PEM format."""
    return _only_certificate(read_bytes(path), path)


def only_certificate(text: str, where: Path) -> str:
    """Return a certificate in PEM format without any other text; refuse a text with none or with several.

    People compare the fingerprint of one, while TLS would trust every one in the file.
    """
    return _only_certificate(text.encode(), where).public_bytes(Encoding.PEM).decode()


def _only_certificate(content: bytes, where: Path) -> x509.Certificate:
    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError:
        raise InputError(f"{where} has no certificate in PEM format", code="bad-certificate") from None
    if len(found) != 1:
        raise InputError(
            f"{where} has {len(found)} certificates, where one is trusted: do not use it",
            code="bad-certificate",
        )
    return found[0]


def make_authority(folder: Path, name: str) -> str:
    """Make an authority, `ca.key` and `ca.crt`, unless it exists; return its certificate's fingerprint."""
    if not (folder / AUTHORITY).exists():
        key = ec.generate_private_key(ec.SECP384R1())
        subject = _subject(f"{name} authority")
        builder = _builder(subject, subject, key, CA_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        _write_pair(folder / AUTHORITY_KEY, key, folder / AUTHORITY, builder.sign(key, SHA384()))
    return certificate_fingerprint(folder / AUTHORITY)


def make_certificate(folder: Path, hosts: Sequence[str]) -> None:
    """Make the server's key and certificate, for these names and addresses, with the folder's authority."""
    authority: Any = serialization.load_pem_private_key(read_bytes(folder / AUTHORITY_KEY), None)
    issuer = read_certificate(folder / AUTHORITY)
    key = ec.generate_private_key(ec.SECP384R1())
    extensions: list[tuple[Any, bool]] = [
        (x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)]), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs_certificates=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), False),
    ]
    builder = _builder(_subject(hosts[0]), issuer.subject, key, SERVER_DAYS)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    _write_pair(folder / CERTIFICATE_KEY, key, folder / CERTIFICATE, builder.sign(authority, SHA384()))


def certificate_problems(folder: Path, hosts: Sequence[str]) -> list[str]:
    """Return what is wrong with the server's certificate, for a server reached by these names."""
    certificate = read_certificate(folder / CERTIFICATE)
    problems = date_problems(folder / AUTHORITY) + date_problems(folder / CERTIFICATE)
    try:
        certificate.verify_directly_issued_by(read_certificate(folder / AUTHORITY))
    except Exception:  # there are several kinds of signatures that do not fit
        problems.append(f"{CERTIFICATE} was not made with {AUTHORITY}: renew it")
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    missing = [host for host in hosts if _general_name(host) not in names]
    if missing:
        problems.append(f"{CERTIFICATE} is not for {', '.join(missing)}: renew it")
    return problems


def date_problems(path: Path) -> list[str]:
    """Return what is wrong with a certificate's dates, by this machine's clock."""
    certificate, now = read_certificate(path), datetime.now(UTC)
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < start:
        return [f"{path.name} is valid from {start:%Y-%m-%d}: set this machine's clock"]
    if now > end:
        return [f"{path.name} ended on {end:%Y-%m-%d}: renew it"]
    return []


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    start = datetime.now(UTC) - timedelta(hours=1)  # for sites whose clock is behind
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    return builder.not_valid_before(start).not_valid_after(start + timedelta(days=days))


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise InputError(
            f"{host!r} is not a name or address of a machine", code="bad-host", field="host"
        ) from None


def _write_pair(
    key_path: Path, key: ec.EllipticCurvePrivateKey, certificate_path: Path, certificate: x509.Certificate
) -> None:
    write_secret(key_path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write_aside(certificate_path, certificate.public_bytes(Encoding.PEM))


# --- Files


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, at every moment."""
    with aside(path) as partial:
        partial.unlink(missing_ok=True)  # another user may have put a file or a link there
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def read_bytes(path: Path) -> bytes:
    """Read a file; if that fails, raise an `InputError` of one line."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", code="unreadable") from None
