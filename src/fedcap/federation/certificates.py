"""The server's certificate: the operator makes an authority of its own, and with it what the server shows.

Every site gets the authority's certificate, `ca.crt`, and trusts no other. Its fingerprint is compared by
telephone, as those of the sites' keys are.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcap.errors import InputError
from fedcap.federation.identity import new_private_key, read_bytes, short, write_secret
from fedcap.files import write_aside

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CA_KEY, CA_CERTIFICATE = "ca.key", "ca.crt"
SERVER_KEY, SERVER_CERTIFICATE = "server.key", "server.crt"
CA_DAYS, SERVER_DAYS = 3650, 820


def certificate_fingerprint(path: Path) -> str:
    """Return the fingerprint of a certificate."""
    from cryptography.hazmat.primitives.serialization import Encoding

    return short(read_certificate(path).public_bytes(Encoding.DER))


def read_certificate(path: Path) -> x509.Certificate:
    """Read the one certificate of a file in PEM format."""
    return _only(read_bytes(path), path)


def only_certificate(text: str, where: Path) -> str:
    """Return a certificate in PEM format and nothing else; refuse a text with none or with several.

    People compare the fingerprint of one, while TLS would trust every one in the file.
    """
    from cryptography.hazmat.primitives.serialization import Encoding

    return _only(text.encode(), where).public_bytes(Encoding.PEM).decode()


def _only(content: bytes, where: Path) -> x509.Certificate:
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError:
        raise InputError(f"{where} has no certificate in PEM format") from None
    if len(found) != 1:
        raise InputError(f"{where} has {len(found)} certificates, where one is trusted: do not use it")
    return found[0]


def make_authority(folder: Path, name: str) -> str:
    """Make an authority, `ca.key` and `ca.crt`, unless it is there; return its certificate's fingerprint."""
    from cryptography import x509

    if not (folder / CA_CERTIFICATE).exists():
        key = new_private_key()
        subject = _subject(f"{name} authority")
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        builder = _builder(subject, subject, key, CA_DAYS).add_extension(constraints, critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        _write_pair(folder, (CA_KEY, CA_CERTIFICATE), key, _signed(builder, key))
    return certificate_fingerprint(folder / CA_CERTIFICATE)


def make_certificate(folder: Path, hosts: Sequence[str]) -> None:
    """Make the server's key and certificate, for these names and addresses, with the folder's authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority: Any = load_pem_private_key(read_bytes(folder / CA_KEY), None)
    issuer = read_certificate(folder / CA_CERTIFICATE)
    key = new_private_key()
    names = x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(hosts)])
    extensions: list[tuple[Any, bool]] = [
        (names, False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs_certificates=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), False),
    ]
    builder = _builder(_subject(hosts[0]), issuer.subject, key, SERVER_DAYS)
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    _write_pair(folder, (SERVER_KEY, SERVER_CERTIFICATE), key, _signed(builder, authority))


def problems(folder: Path, hosts: Sequence[str]) -> list[str]:
    """Return what is wrong with the server's certificate, for a server reached by these names."""
    from cryptography import x509

    found = read_certificate(folder / SERVER_CERTIFICATE)
    said = dates(folder / CA_CERTIFICATE) + dates(folder / SERVER_CERTIFICATE)
    try:
        found.verify_directly_issued_by(read_certificate(folder / CA_CERTIFICATE))
    except Exception:  # a signature that does not fit, in any of several ways
        said.append(f"{SERVER_CERTIFICATE} was not made with {CA_CERTIFICATE}: fedcap federate init --renew")
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    missing = [host for host in hosts if _general_name(host) not in names]
    if missing:
        said.append(
            f"{SERVER_CERTIFICATE} is not for {', '.join(missing)}: make one that is with fedcap federate"
            " init --renew"
        )
    return said


def dates(path: Path) -> list[str]:
    """Return what is wrong with a certificate's dates, seen from this machine's clock."""
    found, now = read_certificate(path), datetime.now(UTC)
    if now < found.not_valid_before_utc:
        return [f"{path.name} is valid from {found.not_valid_before_utc:%Y-%m-%d}: set this machine's clock"]
    if now > found.not_valid_after_utc:
        return [f"{path.name} ended on {found.not_valid_after_utc:%Y-%m-%d}: fedcap federate init --renew"]
    return []


def _subject(name: str) -> x509.Name:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    from cryptography import x509

    start = datetime.now(UTC) - timedelta(hours=1)  # for sites whose clock is behind
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    return builder.not_valid_before(start).not_valid_after(start + timedelta(days=days))


def _signed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives.hashes import SHA384

    return builder.sign(key, SHA384())


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

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
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise InputError(f"{host!r} is no name or address of a machine") from None


def _write_pair(folder: Path, names: tuple[str, str], key: Any, certificate: x509.Certificate) -> None:
    """Write a private key and its certificate."""
    from cryptography.hazmat.primitives import serialization as form

    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    write_secret(folder / names[0], private)
    write_aside(folder / names[1], certificate.public_bytes(form.Encoding.PEM))
