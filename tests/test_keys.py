"""Keys, requests and certificates, checked with OpenSSL and a real TLS handshake."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
import stat
import threading
from pathlib import Path

import pytest
from helpers import refused

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from fedcap.federation import keys


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    first = keys.make_key(tmp_path)
    content = (tmp_path / "key").read_bytes()
    assert keys.make_key(tmp_path) == first
    assert (tmp_path / "key").read_bytes() == content
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    key = form.load_ssh_private_key(content, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp384r1"
    assert (tmp_path / "key.pub").read_text().strip() == keys.public_key(tmp_path)


def test_a_fingerprint_is_the_first_100_bits_of_the_keys_sha256(
    tmp_path: Path,
) -> None:
    found = keys.make_key(tmp_path)
    assert re.fullmatch(r"([0-9a-hjkmnp-tv-z]{4}-){4}[0-9a-hjkmnp-tv-z]{4}", found)
    key = form.load_ssh_public_key((tmp_path / "key.pub").read_bytes())
    bits = "".join(
        f"{byte:08b}"
        for byte in hashlib.sha256(
            key.public_bytes(form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo)
        ).digest()
    )
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    letters = "".join(alphabet[int(bits[at : at + 5], 2)] for at in range(0, 100, 5))
    assert found.replace("-", "") == letters


def test_a_key_has_the_same_fingerprint_in_every_format(tmp_path: Path) -> None:
    found = keys.make_key(tmp_path)
    line = (tmp_path / "key.pub").read_bytes()
    pem = form.load_ssh_public_key(line).public_bytes(
        form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
    )
    assert {keys.fingerprint(key) for key in (line, line.decode(), line + b" a comment", pem)} == {found}
    for nonsense in (b"", b"-----BEGIN PUBLIC KEY-----", b"\xff\xfe", "ssh-rsa AAAA"):
        with refused("bad-key"):
            keys.fingerprint(nonsense)


def test_a_request_can_be_read_and_has_no_secret(tmp_path: Path) -> None:
    found = keys.make_key(tmp_path)
    text = keys.JoinRequest(name="oslo", fingerprint=found, key=keys.public_key(tmp_path)).text()
    (tmp_path / "oslo.toml").write_text(text)
    request = keys.JoinRequest.read(tmp_path / "oslo.toml")
    assert (request.name, request.fingerprint) == ("oslo", found)
    assert found in text
    assert "PRIVATE" not in text
    assert len(text) < 700


def test_another_file_than_a_request_is_an_error_of_one_line(tmp_path: Path) -> None:
    found = keys.make_key(tmp_path)
    path = tmp_path / "oslo.toml"
    text = keys.JoinRequest(name="oslo", fingerprint=found, key=keys.public_key(tmp_path)).text()
    other = ed25519.Ed25519PrivateKey.generate().public_key()
    line = other.public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH).decode()
    for wrong, code in (
        ("", "bad-value"),
        ("\x00", "bad-file"),
        ("x" * 1_000_001, "too-large"),
        (text.replace('"oslo"', '"../oslo"'), "bad-name"),
        (text.replace('"oslo"', '"os\\nlo"'), "bad-name"),
        (text.replace('"oslo"', "7"), "bad-value"),
        (re.sub(r'fingerprint = "....', 'fingerprint = "0000', text), "changed-request"),
        (re.sub(r"AAAAE2.{10}", "", text), "bad-key"),
        (f'name = "oslo"\nfingerprint = "{keys.fingerprint(line)}"\nkey = "{line}"\n', "bad-key"),
    ):
        path.write_text(wrong)
        with refused(code) as error:
            keys.JoinRequest.read(path)
        assert "\n" not in str(error.value)
    with refused("missing-file"):
        keys.JoinRequest.read(tmp_path)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    keys.make_authority(folder, "trial")
    keys.make_certificate(folder, ["fl.example.org", "localhost", "127.0.0.1"])
    return folder


def shake_hands(folder: Path, ca: Path, name: str) -> None:
    """Let a TLS server with the folder's certificate meet a client that trusts `ca` and expects `name`."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.create_default_context(cafile=str(ca))
    here, there = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(there, server_side=True).close()
        except (ssl.SSLError, OSError):
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client.wrap_socket(here, server_hostname=name).close()
    finally:
        here.close()
        thread.join()


@pytest.mark.parametrize("name", ["fl.example.org", "localhost", "127.0.0.1"])
def test_the_servers_certificate_is_accepted_for_its_names(authority: Path, name: str) -> None:
    shake_hands(authority, authority / "ca.crt", name)


def test_the_servers_certificate_is_refused_for_another_name_or_authority(
    authority: Path, tmp_path: Path
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(authority, authority / "ca.crt", "evil.example.org")
    keys.make_authority(tmp_path, "trial")
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        shake_hands(authority, tmp_path / "ca.crt", "localhost")


def test_only_the_owner_can_read_the_servers_private_keys(authority: Path) -> None:
    for name in ("ca.key", "server.key"):
        assert stat.S_IMODE((authority / name).stat().st_mode) == 0o600


def test_a_renewed_certificate_keeps_the_authority_and_its_fingerprint(tmp_path: Path) -> None:
    before = keys.make_authority(tmp_path, "trial")
    keys.make_certificate(tmp_path, ["old.example.org"])
    assert keys.certificate_problems(tmp_path, ["old.example.org"]) == []
    (said,) = keys.certificate_problems(tmp_path, ["new.example.org"])
    assert "not for new.example.org" in said
    assert keys.make_authority(tmp_path, "trial") == before
    keys.make_certificate(tmp_path, ["new.example.org"])
    assert keys.certificate_problems(tmp_path, ["new.example.org"]) == []
    shake_hands(tmp_path, tmp_path / "ca.crt", "new.example.org")


def test_expired_certificates_and_another_authority_are_reported(
    authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("server.crt", "server.key"):
        (tmp_path / name).write_bytes((authority / name).read_bytes())
    keys.make_authority(tmp_path, "trial")
    assert any("was not made with ca.crt" in said for said in keys.certificate_problems(tmp_path, []))
    monkeypatch.setattr(keys, "SERVER_DAYS", 0.01)
    keys.make_certificate(tmp_path, ["localhost"])
    (said,) = keys.certificate_problems(tmp_path, ["localhost"])
    assert re.search(r"server.crt ended on \d{4}-\d\d-\d\d: renew it", said)


def test_an_invalid_host_is_an_error(authority: Path) -> None:
    with refused("bad-host"):
        keys.make_certificate(authority, ["bücher.example"])
