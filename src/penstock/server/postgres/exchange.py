"""The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), which never sees the password.

The server knows a ``Verifier``: salt, iterations, and two keys from which the password cannot be computed. For a user
that is not there the service gives a verifier that nobody's password fits, always the same for one name: such a client
sees the same messages and waits as long as one with a wrong password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

from penstock.server.scram import Verifier

MECHANISM = "SCRAM-SHA-256"


class ScramError(Exception):
    """The exchange does not follow SCRAM."""


class Exchange:
    """One login: the client's first message gives a challenge, its second is checked."""

    def __init__(self, verifiers: Sequence[Verifier], nonce: str | None = None) -> None:
        """``verifiers``: of what the client may know, with one salt."""
        self._verifiers = verifiers
        self._nonce = nonce or base64.b64encode(secrets.token_bytes(18)).decode()
        self._header = b""
        self._bare = ""
        self._challenge = ""

    def first(self, data: bytes) -> bytes:
        """The challenge for the client's first message."""
        text = _decoded(data)
        binding, _, rest = text.partition(",")
        identity, _, bare = rest.partition(",")
        if binding.startswith("p="):
            raise ScramError("channel binding is not offered here")
        if binding not in ("n", "y") or (identity and not identity.startswith("a=")):
            raise ScramError("the first message has no GS2 header")
        fields = bare.split(",")
        if len(fields) < 2 or not fields[0].startswith("n=") or not fields[1].startswith("r=") or len(fields[1]) < 3:
            raise ScramError("the first message names no user and nonce")
        self._header = f"{binding},{identity},".encode()
        self._bare = bare
        self._nonce = fields[1][2:] + self._nonce
        salt = base64.b64encode(self._verifiers[0].salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={self._verifiers[0].iterations}"
        return self._challenge.encode()

    def final(self, data: bytes) -> tuple[bytes, Verifier] | None:
        """The server's last message and what the client has shown; None if it knows none of it."""
        text = _decoded(data)
        without, _, proof = text.rpartition(",p=")
        fields = without.split(",")
        if len(fields) < 2 or not fields[0].startswith("c=") or not fields[1].startswith("r="):
            raise ScramError("the last message has no proof")
        if _base64(fields[0][2:]) != self._header:
            raise ScramError("the last message is for another channel binding")
        if not hmac.compare_digest(fields[1][2:].encode(), self._nonce.encode()):
            raise ScramError("the last message has another nonce")
        told = ",".join((self._bare, self._challenge, without)).encode()
        shown = _base64(proof)
        for verifier in self._verifiers:
            signature = hmac.digest(verifier.stored_key, told, "sha256")
            if len(shown) != len(signature):
                return None
            key = bytes(a ^ b for a, b in zip(shown, signature, strict=True))
            if hmac.compare_digest(hashlib.sha256(key).digest(), verifier.stored_key):
                return b"v=" + base64.b64encode(hmac.digest(verifier.server_key, told, "sha256")), verifier
        return None


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ScramError("a message of SCRAM is not UTF-8") from None


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("a part of a SCRAM message is not base64") from None
