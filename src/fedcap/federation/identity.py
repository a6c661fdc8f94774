"""Who is who: a site's key, its request to take part, and fingerprints that can be read over the telephone.

A site is its public key (EC P-384). The private one is made at the site and never leaves it. Fingerprints are
20 letters and digits, 100 bits of SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedcap.errors import InputError
from fedcap.federation.audit import bounded
from fedcap.files import aside, write_aside
from fedcap.runs import read_toml, to_toml

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

KEY, PUBLIC_KEY = "key", "key.pub"
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Digits and letters without i, l, o and u: nothing that is heard or read as something else."""
GROUPS, GROUP = 5, 4
MOST_REQUEST = 16_000
"""How many bytes a request may have."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


def require_flower() -> None:
    """Raise an `InputError` that says what to install, unless it is there."""
    from importlib.util import find_spec

    if find_spec("flwr") is None or find_spec("cryptography") is None:
        raise InputError("a federation needs Flower: pip install 'fedcap[flower]'")


def short(content: bytes) -> str:
    """Return the fingerprint of some bytes: five groups of four."""
    number = int.from_bytes(hashlib.sha256(content).digest(), "big") >> (256 - 5 * GROUPS * GROUP)
    letters = [ALPHABET[number >> 5 * place & 31] for place in reversed(range(GROUPS * GROUP))]
    return "-".join("".join(letters[at : at + GROUP]) for at in range(0, GROUPS * GROUP, GROUP))


def fingerprint(key: bytes | str) -> str:
    """Return the fingerprint of a public key, given in PEM or in OpenSSH format."""
    from cryptography.hazmat.primitives import serialization as form

    content = key.encode() if isinstance(key, str) else key
    try:
        is_pem = content.lstrip().startswith(b"-----")
        public = form.load_pem_public_key(content) if is_pem else form.load_ssh_public_key(content)
    except Exception:  # whatever a parser makes of somebody's bytes
        raise InputError("this is no public key in OpenSSH or PEM format") from None
    return short(public.public_bytes(form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo))


def make_key(folder: Path) -> str:
    """Make a site's key pair, `key` and `key.pub`, unless it is there; return its fingerprint."""
    from cryptography.hazmat.primitives import serialization as form

    if not (folder / KEY).exists():
        private = new_private_key()
        write_secret(
            folder / KEY,
            private.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption()),
        )
        write_aside(folder / PUBLIC_KEY, _openssh(private) + "\n")
    return fingerprint(public_key(folder))


def public_key(folder: Path) -> str:
    """Return a site's public key, in OpenSSH format, as it follows from the private one."""
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    content = read_bytes(folder / KEY)
    try:
        return _openssh(load_ssh_private_key(content, None))
    except Exception:  # another kind of file, or a key with a password
        raise InputError(f"{folder / KEY} is no private key as fedcap federate enrol makes them") from None


@dataclass(frozen=True)
class Request:
    """What a site sends to the operator to be taken in."""

    name: str
    """What people call the site."""
    key: str
    """Its public key, in OpenSSH format."""

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(
                f"{bounded(self.name, 60)!r} is no name for a site: up to 40 letters, digits, hyphens"
            )

    @property
    def client(self) -> str:
        """The fingerprint of the site's key."""
        return fingerprint(self.key)

    def write(self, path: Path) -> None:
        """Write the request as a file that the site sends to the operator."""
        lines = [
            "# A site's request to take part in a federation. It holds no secret: send it to the operator,",
            "# who reads it with fedcap federate approve.",
            "# Both sides then compare the fingerprint by telephone.",
            to_toml({"name": self.name, "fingerprint": self.client, "key": self.key}),
        ]
        write_aside(path, "\n".join(lines))

    @classmethod
    def read(cls, path: Path) -> Request:
        """Read a request; raise an `InputError` for anything else."""
        if path.is_file() and path.stat().st_size > MOST_REQUEST:
            raise InputError(f"{path} is no request of a site: it has more than {MOST_REQUEST:,} bytes")
        content = read_toml(path)
        name, key = content.get("name"), content.get("key")
        if not isinstance(name, str) or not isinstance(key, str):
            raise InputError(f"{path} is no request of a site: it has no name and key")
        try:
            request = cls(name, " ".join(key.split()[:2]))
            found = request.client
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        if not key.startswith("ecdsa-sha2-nistp384 "):
            raise InputError(f"{path}: the key is not of the kind that fedcap federate enrol makes")
        if content.get("fingerprint", found) != found:
            raise InputError(f"{path} was changed: its fingerprint is not that of its key")
        return request


def new_private_key() -> ec.EllipticCurvePrivateKey:
    """Return a new private key."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def _openssh(private: Any) -> str:
    from cryptography.hazmat.primitives import serialization as form

    public = private.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    return str(public.decode())


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that nobody but its owner may read, not even for a moment."""
    with aside(path) as partial:
        partial.unlink(missing_ok=True)  # it may be somebody else's, or a link
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def read_bytes(path: Path) -> bytes:
    """Read a file; if that fails, raise an `InputError` of one line."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
