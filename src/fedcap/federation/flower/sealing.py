"""The operator's seal on every order.

Flower lets any registered node that knows another's id leave a message for it in the server's name. So each
order is signed with the key of the server's certificate, for one client; the site checks that the certificate
is one of the authority that it trusts, and that the order is for itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedcap.federation.messages import Arrays, Config, Malformed

CLIENT, CERTIFICATE, SEAL = "client", "certificate", "seal"


class Seal:
    """Signs orders with the server's key."""

    def __init__(self, key: Path, certificate: Path) -> None:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        self.key: Any = load_pem_private_key(key.read_bytes(), None)
        self.certificate = certificate.read_text()

    def __call__(self, arrays: Arrays, config: Config, client: str) -> Config:
        """Return the values of an order, sealed for a client."""
        whole = config | {CLIENT: client, CERTIFICATE: self.certificate}
        return whole | {SEAL: self.key.sign(digest(arrays, whole), _algorithm()).hex()}


def unseal(arrays: Arrays, config: Mapping[str, Any], client: str, authority: bytes) -> dict[str, Any]:
    """Return the values of an order without its seal; raise `Malformed` if it has none that is for us."""
    from cryptography import x509

    whole = dict(config)
    seal = whole.pop(SEAL, "")
    try:
        certificate = x509.load_pem_x509_certificate(str(whole[CERTIFICATE]).encode())
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
        if not certificate.not_valid_before_utc <= datetime.now(UTC) <= certificate.not_valid_after_utc:
            raise ValueError
        public: Any = certificate.public_key()
        public.verify(bytes.fromhex(seal), digest(arrays, whole), _algorithm())
    except Exception:  # whatever is wrong with a forged order
        raise Malformed("the order does not bear the operator's seal") from None
    if whole[CLIENT] != client:
        raise Malformed("the order is for another site")
    del whole[CLIENT], whole[CERTIFICATE]
    return whole


def digest(arrays: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 of all that an order says."""
    forms = {name: [array.dtype.str, array.shape] for name, array in arrays.items()}
    found = hashlib.sha256(json.dumps([dict(config), forms], sort_keys=True).encode())
    for name in sorted(arrays):
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.digest()


def _algorithm() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA384

    return ec.ECDSA(SHA384())
