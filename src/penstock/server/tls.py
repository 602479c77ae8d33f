"""One certificate for all protocols, read again without a restart."""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
import ssl
import threading
from dataclasses import replace
from pathlib import Path

from penstock.model.errors import InputError
from penstock.server.settings import Settings

CERT, KEY = "server.crt", "server.key"
"""Where a certificate that the server makes itself is, in the directory of the database."""
_YEARS = 2
_lock = threading.Lock()
_contexts: dict[tuple[Path, Path], ssl.SSLContext] = {}
"""One for each certificate: connections that come after ``reload`` get the new one. Bounded by the servers of this
process."""


def prepared(settings: Settings, directory: Path | None) -> Settings:
    """The settings with a certificate, where one is to be made; it is made once, in the database's directory."""
    if settings.tls_cert is not None or not settings.tls_self_signed:
        return settings
    if directory is None:
        raise InputError("tls_self_signed needs a directory for the certificate", hint="name tls_cert and tls_key")
    cert, key = directory / CERT, directory / KEY
    if not (cert.exists() and key.exists()):
        _make(cert, key, settings.host)
    return replace(settings, tls_cert=cert, tls_key=key)


def context(settings: Settings) -> ssl.SSLContext | None:
    """What a protocol wraps its connections in; None: it does not."""
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None or key is None:
        return None
    with _lock:
        if (cert, key) not in _contexts:
            made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            made.minimum_version = ssl.TLSVersion.TLSv1_2
            _load(made, cert, key)
            _contexts[cert, key] = made
        return _contexts[cert, key]


def stamp(settings: Settings) -> tuple[object, ...] | None:
    """What tells that the files of the certificate are others; None where one of them is not there just now."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    try:
        found = [path.stat() for path in (settings.tls_cert, settings.tls_key)]
    except OSError:
        return None
    return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)


def reload(settings: Settings) -> None:
    """Read the certificate again; InputError, and it stays as it was, where the files do not fit."""
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None or key is None:
        return
    _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cert, key)  # raises before the one in use is touched
    with _lock:
        if (cert, key) in _contexts:
            _load(_contexts[cert, key], cert, key)


def _load(made: ssl.SSLContext, cert: Path, key: Path) -> None:
    try:
        made.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as problem:
        raise InputError(f"{cert} and {key} are not a certificate and its key: {problem}") from None


def _make(cert: Path, key: Path, host: str) -> None:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ModuleNotFoundError:
        raise InputError("tls_self_signed needs the Python package `cryptography`",
                         hint="pip install 'penstock[server]', or name tls_cert and tls_key") from None  # fmt: skip
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "penstock")])
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.DNSName(socket.gethostname())]
    addresses = {"127.0.0.1", "::1", host}
    for address in addresses:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(address)))
        except ValueError:
            names.append(x509.DNSName(address))
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(secret.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(secret, hashes.SHA256())
    )  # fmt: skip
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    _write(key, secret.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain), 0o600)
    _write(cert, made.public_bytes(pem), 0o644)  # who trusts it reads it


def _write(path: Path, content: bytes, mode: int) -> None:
    """Appears in one step."""
    made = path.with_name(path.name + ".new")
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
    made.replace(path)
