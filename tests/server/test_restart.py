"""What a server remembers: users, grants, owners, tokens, subscriptions and positions are there after a restart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock import CatalogError, Database, ResultsGone, StateError, connect
from penstock.hosts.options import Keeping
from penstock.model.amounts import Bound
from penstock.server.audit import FILE as AUDIT
from penstock.server.audit import Audit
from penstock.server.service import Service
from penstock.server.settings import Settings
from tests.server.serving import Clock, served

SETUP = """
CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE QUERY q AS SELECT v, count(*) AS n FROM s [ROWS 3] GROUP BY v;
"""


def test_users_grants_and_tokens_survive(tmp_path: Path) -> None:
    with served(tmp_path) as it:
        it.run(SETUP)
        it.user("bob", "READ ON QUERY q", "DEFINE")
        it.run("CREATE ROLE watchers; GRANT ROLE watchers TO bob")
        state, admin = it.service.access.state, str(it.token)
        it.run("CREATE STREAM b (t BIGINT) TIMESTAMP BY t", it.login("bob"))
        owned = it.service.access.state.owners
    with served(tmp_path) as it:
        assert it.token is None, "only a new database has a new token"
        again = it.service.access.state
        assert (again.users, again.roles, again.grants, again.tokens) == (
            state.users, state.roles, state.grants, state.tokens
        )  # fmt: skip
        assert again.owners == owned
        bob = it.login("bob")
        assert it.service.feed(bob, "q").first == 0
        it.run("INSERT INTO b VALUES (1)", bob)
        assert it.service.login_token(admin, protocol="http", remote="x").admin


def test_a_named_subscription_goes_on_where_it_was(tmp_path: Path) -> None:
    with served(tmp_path) as it:
        it.run(SETUP)
        bob = it.user("bob", "READ ON QUERY q")
        it.user("eve", "READ ON QUERY q")
        it.service.subscription(bob, "mine", query="q", start="start")
        it.db.push("s", [(i, i % 4) for i in range(10)])
        feed = it.service.feed(bob, "q")
        results = feed.read(0, fresh=True).table.to_pylist()
        it.service.confirm(bob, "mine", 4)
        it.service.confirm(bob, "mine", 2)  # again, and late
        with pytest.raises(StateError, match="is not there yet"):
            it.service.confirm(bob, "mine", feed.next + 1)
    with served(tmp_path) as it:
        bob, eve = it.login("bob"), it.login("eve")
        mine = it.service.subscription(bob, "mine")
        assert (mine.query, mine.position, mine.owner, mine.gone) == ("q", 4, "bob", 0)
        feed = it.service.feed(bob, "q")
        assert mine.lag == feed.next - 4
        assert feed.read(4, fresh=True).table.to_pylist() == results[4:]
        it.db.push("s", [(20, 1)])
        assert feed.read(len(results), fresh=True).table.num_rows > 0
        outcome = it.run("SUBSCRIBE q AS mine", bob)[0].subscribe
        assert outcome is not None
        assert (outcome.query, outcome.position, outcome.name) == ("q", 4, "mine")
        it.run(f"CONFIRM mine AT {feed.next}", bob)
        assert it.service.subscription(bob, "mine").lag == 0
        with pytest.raises(CatalogError, match="no subscription"):
            it.service.subscription(eve, "mine")
        it.run("DROP SUBSCRIPTION mine", bob)
    with served(tmp_path) as it:
        assert it.service.subscriptions(it.login("bob")) == []


def test_subscriptions_go_with_their_query_and_their_places_are_used_again(tmp_path: Path) -> None:
    with served(tmp_path) as it:
        it.run(SETUP)
        for name in "abc":
            it.run(f"CREATE SUBSCRIPTION {name} FOR q FROM START")
        it.run("DROP SUBSCRIPTION b")
        it.run("CREATE SUBSCRIPTION d FOR q")
        notes = [key for key, value in it.db.note().items() if key.startswith("server.subscription.")]
        assert len(notes) == 3
        it.run("STOP QUERY q")
        assert it.run("SHOW SUBSCRIPTIONS")[0].message == "0 subscriptions"
        it.run("CREATE QUERY q AS SELECT v FROM s [ROWS 1]")
    with served(tmp_path) as it:
        assert it.service.subscriptions(it.service.login_token(_admin(it.service), protocol="http", remote="")) == []


def _admin(service: Service) -> str:
    return service.access.recover()


def test_what_was_left_half_way_is_forgotten(tmp_path: Path) -> None:
    """A server killed after it wrote down an owner, and before the thing was there, or after a drop."""
    with served(tmp_path) as it:
        it.run(SETUP)
        it.user("bob")
        it.service.access.own({("stream", "never"): "bob"})
        it.run("CREATE SUBSCRIPTION mine FOR q; GRANT READ ON STREAM s TO bob")
        it.db.queries["q"].stop()
        it.db.execute("DROP STREAM s")
    with served(tmp_path) as it:
        assert {kind for kind, _ in it.service.access.named()} <= {"stopped"}
        assert it.service.subscriptions(it.login("bob")) == []
        assert [key for key, value in it.db.note().items() if key.startswith("server.sub") and value is not None] == []


def test_a_server_keeps_the_results_that_its_settings_say(tmp_path: Path) -> None:
    keeping = Keeping(results=Bound(rows=5))
    with Database("local", path=tmp_path, keeping=keeping) as db:
        db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
        bounded = db.query("SELECT ISTREAM t FROM s [NOW]", name="a")
        larger = db.query("SELECT ISTREAM t FROM s [NOW]", name="b", results="100 rows")
        for i in range(50):
            db.push("s", [(i,)])
        assert bounded.retained[1] - bounded.retained[0] == 5
        assert larger.retained[0] == 0
        larger.alter(results=None)
        db.push("s", [(50,)])
        assert larger.retained[1] - larger.retained[0] == 5
        with pytest.raises(ResultsGone) as gone:
            bounded.read(0)
        assert gone.value.first == bounded.retained[0]
        before = bounded.retained, bounded.read(bounded.retained[0]).to_pylist()
    with Database("local", path=tmp_path, keeping=keeping) as db:
        again = db.queries["a"]
        assert (again.retained, again.read(again.retained[0]).to_pylist()) == before
    with connect(tmp_path, engine="local") as db:
        assert db.queries["a"].retained[1] == before[0][1]


def test_the_audit_log_is_bounded(tmp_path: Path) -> None:
    clock = Clock(0)
    audit = Audit(tmp_path / AUDIT, 500, clock)
    for i in range(50):
        audit.write("bob", "statement", text=f"CREATE STREAM s{i} …")
    audit.close()
    files = sorted(p.name for p in tmp_path.iterdir())
    assert files == [AUDIT, f"{AUDIT}.1"]
    lines = [json.loads(line) for name in reversed(files) for line in (tmp_path / name).read_text().splitlines()]
    assert all((tmp_path / name).stat().st_size <= 500 for name in files)
    assert lines[-1] == {
        "at": "1970-01-01T00:00:00.000000Z", "user": "bob", "what": "statement", "text": "CREATE STREAM s49 …",
    }  # fmt: skip
    assert [line["text"] for line in lines] == [f"CREATE STREAM s{i} …" for i in range(50 - len(lines), 50)]
    assert (tmp_path / AUDIT).stat().st_mode & 0o077 == 0, "only who runs the server reads it"


def test_the_audit_log_is_in_the_directory(tmp_path: Path) -> None:
    with served(tmp_path) as it:
        it.run(SETUP)
        it.run("CREATE USER bob PASSWORD 'very-secret'")
    lines = [json.loads(line) for line in (tmp_path / AUDIT).read_text().splitlines()]
    assert [line.get("text", line.get("said", ""))[:13] for line in lines] == [
        "CREATE STREAM", "CREATE QUERY ", "user bob crea",
    ]  # fmt: skip
    assert {line["user"] for line in lines} == {"admin"}
    assert "very-secret" not in str(lines)
    with connect(tmp_path, engine="local") as db:
        Service(db, Settings()).close()
