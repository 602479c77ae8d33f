"""Wrong passwords: they are slowed down on every protocol, written down where they push nothing out, and never lock out
who comes from another address. Time is that of a simulated clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import adbc_driver_flightsql.dbapi as dbapi
import httpx
import psycopg
import pytest

from penstock import AccessDenied, CatalogError, LoginFailed
from penstock.server.audit import FILE, REFUSED
from penstock.server.settings import Settings
from penstock.server.throttle import EVERY, FREE, Throttle, Throttled, address_of
from tests.server import over_http, pg
from tests.server.serving import Clock, Served, served
from tests.server.test_flight import flying

RIGHT = "bob-password"


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def wrong(it: Served, remote: str, user: str = "bob") -> None:
    with pytest.raises(LoginFailed):
        it.service.login(user, "wrong-password", protocol="http", remote=remote)


def test_after_some_wrong_passwords_the_next_has_to_wait() -> None:
    with served() as it:
        it.user("bob")
        for _ in range(FREE):
            wrong(it, "10.0.0.9")
        with pytest.raises(Throttled, match="too many wrong passwords") as refused:
            it.service.login("bob", RIGHT, protocol="http", remote="10.0.0.9")
        assert refused.value.seconds == EVERY // 1_000_000
        it.service.login("bob", RIGHT, protocol="http", remote="10.0.0.8")  # another address is not concerned
        it.service.login("admin", it.token or "", protocol="http", remote="10.0.0.9")  # nor another user
        it.clock.now += EVERY
        it.service.login("bob", RIGHT, protocol="http", remote="10.0.0.9")
        wrong(it, "10.0.0.9")
        with pytest.raises(Throttled):
            wrong(it, "10.0.0.9")
        it.clock.now += FREE * EVERY
        for _ in range(FREE):
            wrong(it, "10.0.0.9")


def test_a_token_is_let_in_whatever_came_before() -> None:
    with served() as it:
        it.user("bob")
        made = it.run("CREATE TOKEN laptop FOR bob")[0].table
        assert made is not None
        token = made.column("token")[0].as_py()
        for _ in range(FREE):
            wrong(it, "10.0.0.9")
        for _ in range(2 * FREE):
            with pytest.raises(LoginFailed):
                it.service.login_token("pst_wrong", protocol="http", remote="10.0.0.9")
        it.service.login("bob", token, protocol="http", remote="10.0.0.9")
        it.service.login_token(token, protocol="http", remote="10.0.0.9")


def test_what_is_remembered_is_bounded_and_forgotten() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    for i in range(12_000):
        throttle.failed(f"user{i}", "10.0.0.9")
    assert len(throttle) == 10_000
    clock.now += EVERY
    throttle.failed("bob", "10.0.0.9")
    assert len(throttle) == 1


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("10.0.0.9", "10.0.0.9"), ("10.0.0.9:5000", "10.0.0.9"), ("ipv4:10.0.0.9:5000", "10.0.0.9"),
        ("[::ffff:10.0.0.9]:5000", "10.0.0.9"), ("2001:db8::1", "2001:db8::/64"),
        ("[2001:db8::2]:5000", "2001:db8::/64"), ("ipv6:%5B2001:db8::3%5D:5000", "2001:db8::/64"),
        ("handshake", "handshake"),
    ],
)  # fmt: skip
def test_the_address_of_a_client(remote: str, address: str) -> None:
    assert address_of(remote) == address


def test_http_says_when_to_come_again() -> None:
    with over_http.served() as to:
        to.sql(f"CREATE USER bob PASSWORD '{RIGHT}'")

        def ask(password: str) -> httpx.Response:
            return httpx.get(f"{to.url}/api/me", auth=("bob", password))

        assert {ask("wrong-password").status_code for _ in range(FREE)} == {401}
        refused = ask(RIGHT)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
        assert refused.json()["error"] == "LimitExceeded"
        with to.client() as other:
            assert other.get("/api/me").status_code == 200
        to.now[0] += EVERY
        assert ask(RIGHT).status_code == 200


def test_postgresql_slows_down_and_writes_down(tmp_path: Path) -> None:
    clock = Clock()
    with pg.serving(clock=clock, path=tmp_path) as to:

        def connect(password: str) -> psycopg.Connection:
            return psycopg.connect(**to.uri(password=password), autocommit=True)  # type: ignore[arg-type]

        for _ in range(FREE):
            with pytest.raises(psycopg.OperationalError, match='password authentication failed for user "admin"'):
                connect("wrong-password")
        for _ in range(3):
            with pytest.raises(psycopg.OperationalError, match="try again in 10 s"):
                connect(pg.PASSWORD)
        clock.now += EVERY
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            connect("wrong-password")
        clock.now += FREE * EVERY
        connect(pg.PASSWORD).close()
    found = [line for line in lines(tmp_path / REFUSED) if line["what"] == "login refused"]
    assert [(line["user"], line["protocol"]) for line in found] == [("admin", "postgres")] * (FREE + 1)
    assert [line.get("unseen before") for line in found] == [None] * FREE + [3]
    assert "wrong-password" not in str(found)


def test_flight_slows_down_by_the_address_of_the_calls() -> None:
    clock = Clock()
    with flying(clock=clock) as to:
        to.service.access.create_user("bob", RIGHT)

        def ask(password: str) -> list[tuple[object, ...]]:
            with to.connect("bob", password) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT 1")
                return cursor.fetchall()

        for _ in range(FREE):
            with pytest.raises(dbapi.Error, match="wrong"):
                ask("wrong-password")
        # No handshake is looked at any more. They tell no address: the first call does, and the right password gets in.
        assert ask(RIGHT) == [(1,)]
        for _ in range(FREE):
            with pytest.raises(dbapi.Error, match="wrong"):
                ask("another-wrong-password")
        with pytest.raises(dbapi.Error, match="too many wrong passwords"):
            ask("a-third-wrong-password")
        clock.now += FREE * EVERY
        assert ask(RIGHT) == [(1,)]


def test_refused_logins_push_nothing_out_of_the_audit_log(tmp_path: Path) -> None:
    with served(tmp_path, Settings(audit=2_000)) as it:
        bob = it.user("bob", "DEFINE")
        it.run("CREATE STREAM precious (t BIGINT) TIMESTAMP BY t", bob)
        for i in range(200):
            with pytest.raises(LoginFailed):
                it.service.login_token(f"pst_{i}", protocol="http", remote="10.0.0.9")
            with pytest.raises(AccessDenied):
                it.run("CREATE USER eve", bob)
    assert any("precious" in str(line.get("text")) for line in lines(tmp_path / FILE))
    kept = [tmp_path / REFUSED, tmp_path / f"{REFUSED}.1"]
    assert all(path.stat().st_size <= 2_000 for path in kept)
    assert {line["what"] for path in kept for line in lines(path)} == {"login refused", "denied"}


@pytest.mark.parametrize("change", ["DROP TOKEN laptop", "DROP USER bob", "ALTER USER bob PASSWORD 'another one'"])
def test_what_is_withdrawn_during_a_scram_exchange_does_not_get_in(change: str) -> None:
    with served() as it:
        it.run("CREATE USER bob")
        it.run("CREATE TOKEN laptop FOR bob; CREATE TOKEN other FOR bob")
        tokens = [t for t in it.service.access.state.tokens.values() if t.user == "bob"]
        (shown,) = [v for v in it.service.scram("bob", remote="x") if str(v) == tokens[0].verifier]
        it.run(change)
        with pytest.raises(LoginFailed):
            it.service.login_verified("bob", shown, protocol="postgres", remote="x")


def test_an_old_and_a_new_token_are_passwords_of_postgresql_while_they_are_exchanged() -> None:
    with pg.serving() as to:
        old = to.token
        to.service.access.set_password("admin", None)
        new = to.service.access.create_token("second", "admin")

        def user(token: str) -> object:
            with psycopg.connect(**to.uri(password=token), autocommit=True) as client:  # type: ignore[arg-type]
                found = client.execute("SELECT token FROM sys.sessions WHERE protocol = 'postgres'").fetchone()
                return None if found is None else found[0]

        assert (user(old), user(new)) == ("admin", "second")
        to.service.access.drop_token("admin")
        assert user(new) == "second"
        with pytest.raises(psycopg.OperationalError):
            user(old)


def test_a_subscription_tells_nothing_of_a_query_after_revoke() -> None:
    with served() as it:
        it.run("CREATE STREAM s (t BIGINT) TIMESTAMP BY t; CREATE QUERY q AS SELECT ISTREAM t FROM s [NOW]")
        bob = it.user("bob", "READ ON QUERY q")
        it.run("CREATE SUBSCRIPTION mine FOR q FROM START", bob)
        it.run("INSERT INTO s VALUES (1), (2), (3)")
        it.db.settle()
        it.service.confirm(bob, "mine", 1)

        def looks() -> list[Callable[[], object]]:
            service = it.service
            return [
                lambda: service.subscription(bob, "mine").lag, lambda: service.subscriptions(bob)[0].lag,
                lambda: service.sys_table(bob, "subscriptions").column("lag")[0].as_py(),
                lambda: it.run("SHOW SUBSCRIPTIONS", bob)[0].table.column("lag")[0].as_py(),  # type: ignore[union-attr]
            ]  # fmt: skip

        before = [look() for look in looks()]
        assert before[0] is not None
        assert len(set(before)) == 1
        it.run("REVOKE READ ON QUERY q FROM bob")
        assert [look() for look in looks()] == [None] * 4
        for position in (1, 2, 10**9):  # neither how far it is
            with pytest.raises(CatalogError, match="no query"):
                it.service.confirm(bob, "mine", position)
        it.run("DROP SUBSCRIPTION mine", bob)
