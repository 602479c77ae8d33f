"""Passwords as PostgreSQL keeps them: SCRAM-SHA-256 verifiers (RFC 5802, RFC 7677), from which no password follows."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from dataclasses import dataclass

ITERATIONS = 4_096


@dataclass(frozen=True)
class Verifier:
    """What is kept of a password; its parts are what the exchange needs."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        salt, stored, server = (base64.b64encode(b).decode() for b in (self.salt, self.stored_key, self.server_key))
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored}:{server}"

    def fits(self, password: str) -> bool:
        """Whether it is that of a password."""
        made = verifier(password, salt=self.salt, iterations=self.iterations)
        return hmac.compare_digest(made.stored_key, self.stored_key)


def verifier(password: str, *, salt: bytes | None = None, iterations: int = ITERATIONS) -> Verifier:
    """The verifier of a password, with a new salt where none is given."""
    salt = secrets.token_bytes(16) if salt is None else salt
    salted = hashlib.pbkdf2_hmac("sha256", prepared(password).encode(), salt, iterations)
    client = hmac.digest(salted, b"Client Key", "sha256")
    return Verifier(
        iterations, salt, hashlib.sha256(client).digest(), hmac.digest(salted, b"Server Key", "sha256")
    )


def parsed(text: str) -> Verifier:
    """The verifier that ``str`` has made a text of."""
    _, how, keys = text.split("$")
    iterations, salt = how.split(":")
    stored, server = keys.split(":")
    return Verifier(int(iterations), *(base64.b64decode(part) for part in (salt, stored, server)))


def mock(secret: bytes, user: str) -> Verifier:
    """One that no password fits, the same for the same name: so nobody learns which users there are."""
    salt = hmac.digest(secret, b"salt" + user.encode(), "sha256")[:16]
    return Verifier(ITERATIONS, salt, hmac.digest(secret, b"stored" + user.encode(), "sha256"), secret)


_FORBIDDEN = (
    stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4,
    stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8,
    stringprep.in_table_c9,
)  # fmt: skip


def prepared(password: str) -> str:
    """A password by SASLprep (RFC 4013); as it is where that forbids it, as PostgreSQL does."""
    if password.isascii():
        return password
    spaced = "".join(" " if stringprep.in_table_c12(c) else c for c in password if not stringprep.in_table_b1(c))
    found = unicodedata.normalize("NFKC", spaced)
    right = [stringprep.in_table_d1(c) for c in found]
    mixed = any(right) and (any(map(stringprep.in_table_d2, found)) or not (right[0] and right[-1]))
    if not found or mixed or any(forbidden(c) for c in found for forbidden in _FORBIDDEN):
        return password
    return found
