"""Credentials: tokens with expiry, passwords, SCRAM verifiers; nothing secret is stored in clear."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path

import pytest

from penstock import CatalogError, InputError, LimitExceeded, LoginFailed
from penstock.server import scram
from penstock.server.access import ADMIN
from penstock.server.scram import Verifier
from penstock.server.settings import Settings
from tests.server.serving import DAY, Clock, Served, served


def token_of(it: Served, text: str) -> str:
    table = it.run(text)[0].table
    assert table is not None
    token = table.column("token")[0].as_py()
    assert isinstance(token, str)
    return token


def shown(it: Served, user: str) -> Verifier:
    """What a SCRAM exchange shows that goes well."""
    return it.service.scram(user, remote="x")[0]


def test_the_first_start_makes_an_admin_with_a_token() -> None:
    with served() as it:
        assert it.token is not None
        assert it.admin is not None
        assert it.admin.admin
        assert it.service.access.first_start() is None
        # It is the admin's password too, until another is set.
        assert it.service.login(ADMIN, it.token, protocol="flight", remote="x").user == ADMIN
        assert it.service.scram(ADMIN, remote="x")[0].fits(it.token)
        assert it.service.login_verified(ADMIN, shown(it, ADMIN), protocol="postgres", remote="x").token == ADMIN
        it.run("ALTER USER admin PASSWORD 'correct horse'")
        assert not it.service.scram(ADMIN, remote="x")[0].fits(it.token)
        assert it.service.scram(ADMIN, remote="x")[0].fits("correct horse")


def test_a_token_expires() -> None:
    with served() as it:
        it.run("CREATE USER bob")
        token = token_of(it, "CREATE TOKEN laptop FOR bob EXPIRES '30 days'")
        bob = it.service.login_token(token, protocol="http", remote="x")
        assert (bob.user, bob.token, bob.expires) == ("bob", "laptop", it.clock.now + 30 * DAY)
        it.clock.now += 30 * DAY - 1
        it.run("SHOW STREAMS", bob)
        it.clock.now += 1
        for attempt in (
            lambda: it.run("SHOW STREAMS", bob),
            lambda: it.service.login_token(token, protocol="http", remote="x"),
            lambda: it.service.login("bob", token, protocol="flight", remote="x"),
            lambda: it.service.login_verified("bob", shown(it, "bob"), protocol="postgres", remote="x"),
        ):
            with pytest.raises(LoginFailed):
                attempt()
        assert not it.service.scram("bob", remote="x")[0].fits(token)


def test_a_token_is_exchanged_for_another() -> None:
    with served() as it:
        it.run("CREATE USER bob")
        old = token_of(it, "CREATE TOKEN one FOR bob")
        session = it.service.login_token(old, protocol="postgres", remote="x")
        it.clock.now += 1
        new = token_of(it, "CREATE TOKEN two FOR bob")
        assert it.service.login_token(old, protocol="http", remote="x").user == "bob", "both are good meanwhile"
        assert it.service.scram("bob", remote="x")[0].fits(new)
        it.run("DROP TOKEN one")
        with pytest.raises(LoginFailed):
            it.run("SHOW STREAMS", session)
        with pytest.raises(LoginFailed):
            it.service.login_token(old, protocol="http", remote="x")
        again = token_of(it, "CREATE TOKEN one FOR bob")
        with pytest.raises(LoginFailed):
            it.run("SHOW STREAMS", session)  # another token of the same name
        assert again != old


@pytest.mark.parametrize("user", ["bob", "nobody"])
def test_a_wrong_password_tells_nothing(user: str) -> None:
    with served() as it:
        it.user("bob")
        with pytest.raises(LoginFailed) as refused:
            it.service.login(user, "wrong-password", protocol="flight", remote="x")
        assert refused.value.message == "the user or the password is wrong"
        # Who is not there has a verifier too, the same each time, which nothing fits.
        verifier = it.service.scram(user, remote="x")[0]
        assert verifier == it.service.scram(user, remote="x")[0]
        assert verifier.iterations == it.service.scram(ADMIN, remote="x")[0].iterations
        assert not verifier.fits("wrong-password")


def test_a_token_of_one_user_is_not_anothers_password() -> None:
    with served() as it:
        it.user("bob")
        assert it.token is not None
        with pytest.raises(LoginFailed):
            it.service.login("bob", it.token, protocol="flight", remote="x")


def test_a_user_without_password_and_token_cannot_log_in() -> None:
    with served() as it:
        it.run("CREATE USER bob")
        with pytest.raises(LoginFailed):
            it.service.login_verified("bob", shown(it, "bob"), protocol="postgres", remote="x")
        it.run("ALTER USER bob PASSWORD 'correct horse'")
        it.service.login("bob", "correct horse", protocol="postgres", remote="x")
        it.run("ALTER USER bob NO PASSWORD")
        with pytest.raises(LoginFailed):
            it.service.login("bob", "correct horse", protocol="postgres", remote="x")


def test_short_passwords_and_odd_names_are_refused() -> None:
    with served() as it:
        with pytest.raises(InputError, match="has 5 characters"):
            it.run("CREATE USER bob PASSWORD 'short'")
        with pytest.raises(InputError, match="is not a name"):
            it.run('CREATE USER "no good"')
        with pytest.raises(CatalogError, match="no role `r`"):
            it.run("CREATE USER bob IN ROLE r")
        it.run("CREATE USER bob")
        with pytest.raises(CatalogError, match="already"):
            it.run("CREATE ROLE bob")
        assert it.run("SHOW USERS")[0].table.column("user").to_pylist() == ["admin", "bob"]  # type: ignore[union-attr]


def test_nothing_secret_is_on_disk(tmp_path: Path) -> None:
    with served(tmp_path / "db") as it:
        it.user("bob")
        token = token_of(it, "CREATE TOKEN laptop FOR bob")
        secrets = (token, str(it.token), "bob-password")
        noted = json.dumps(it.db.note())
    written = [p.read_bytes() for p in (tmp_path / "db").rglob("*") if p.is_file()]
    assert len(written) > 1
    assert "laptop" in noted
    for secret in secrets:
        assert secret not in noted
        assert not any(secret.encode() in content for content in written)


def test_rfc_7677() -> None:
    """The exchange of the RFC: what a server keeps verifies the client's proof and makes its own signature."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    kept = scram.parsed(str(scram.verifier("pencil", salt=salt)))
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    message = (
        f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}"
    ).encode()
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(kept.stored_key, message, "sha256")
    client = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client).digest() == kept.stored_key
    assert base64.b64encode(hmac.digest(kept.server_key, message, "sha256")) == (
        b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )
    assert kept.fits("pencil")
    assert not kept.fits("pencils")


@pytest.mark.parametrize(
    ("given", "prepared"), [("I­X", "IX"), ("user", "user"), ("ª", "a"), ("Ⅸ", "IX"), ("ا1", "ا1")]
)
def test_passwords_are_prepared_as_rfc_4013_says(given: str, prepared: str) -> None:
    assert scram.prepared(given) == prepared


def test_sessions_are_bounded_and_those_of_http_make_room() -> None:
    with served(settings=Settings(sessions=3, idle=60)) as it:
        assert it.token is not None
        first, again, other = (it.service.login_token(it.token, protocol="http", remote=r) for r in ("a", "a", "b"))
        assert first is again
        assert {s.id for s in it.service.sessions(first)} == {str(it.admin.id), first.id, other.id}  # type: ignore[union-attr]
        it.service.login_token(it.token, protocol="http", remote="c")
        assert "a" not in {s.remote for s in it.service.sessions(first)}, "it was used least lately"
        held = [it.service.login_token(it.token, protocol="postgres", remote="p") for _ in range(2)]
        with pytest.raises(LimitExceeded, match="3 sessions"):
            it.service.login_token(it.token, protocol="http", remote="d")
        it.service.logout(held[0])
        it.service.login_token(it.token, protocol="http", remote="d")
        it.service.logout(held[1])
        it.clock.now += 61_000_000
        it.service.login_token(it.token, protocol="http", remote="e")
        assert [s.remote for s in it.service.sessions(first) if s.protocol == "http"] == ["e"]


def test_a_lost_token_is_replaced_on_the_servers_machine(tmp_path: Path) -> None:
    from penstock.server.life import new_token

    clock = Clock()
    with served(tmp_path / "db", clock=clock) as it:
        lost = str(it.token)
        it.user("bob")
    token = new_token(str(tmp_path / "db"), Settings())
    with served(tmp_path / "db") as it:
        assert it.token is None
        assert it.service.login_token(token, protocol="http", remote="x").admin
        assert it.login("bob").user == "bob"
        with pytest.raises(LoginFailed):
            it.service.login_token(lost, protocol="http", remote="x")
    with pytest.raises(InputError, match="not the directory of a database"):
        new_token(str(tmp_path / "nothing"), Settings())
