"""Who may do what: every kind of statement with every right, and that strangers learn nothing of names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import pytest

from penstock import AccessDenied, BindError, CatalogError, LoginFailed, PenstockError
from penstock.server.looking import SYS
from penstock.server.session import Session
from tests.server.serving import Served, served

SETUP = """
CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE RELATION r (k BIGINT, v BIGINT) KEY (k);
CREATE VIEW w AS SELECT v FROM s [ROWS 3];
CREATE QUERY q AS SELECT v, count(*) AS n FROM s [ROWS 3] GROUP BY v;
INSERT INTO s VALUES (1, 2);
INSERT INTO r VALUES (1, 1)
"""
READ_S, WRITE_S, READ_R, WRITE_R = "READ ON STREAM s", "WRITE ON STREAM s", "READ ON RELATION r", "WRITE ON RELATION r"
READ_W, READ_Q, DEFINE, ADMINISTER = "READ ON VIEW w", "READ ON QUERY q", "DEFINE", "ADMINISTER"
RIGHTS = (READ_S, WRITE_S, READ_R, WRITE_R, READ_W, READ_Q, DEFINE)
NEEDS: dict[str, set[str]] = {
    "CREATE STREAM x (t BIGINT) TIMESTAMP BY t": {DEFINE},
    "CREATE RELATION x (k BIGINT)": {DEFINE},
    "CREATE VIEW x AS SELECT v FROM s [ROWS 2]": {DEFINE, READ_S},
    "CREATE VIEW x AS SELECT v FROM w": {DEFINE, READ_W},
    "CREATE STREAM x AS SELECT ISTREAM v FROM s [ROWS 2]": {DEFINE, READ_S},
    "CREATE QUERY x AS SELECT v FROM s [ROWS 2]": {DEFINE, READ_S},
    "CREATE QUERY x AS WITH s AS (SELECT v FROM s [ROWS 2]) SELECT v FROM s": {DEFINE, READ_S},
    "CREATE QUERY x AS SELECT v FROM s [NOW] WHERE v IN (SELECT v FROM r)": {DEFINE, READ_S, READ_R},
    "CREATE QUERY x AS SELECT ISTREAM v FROM s [ROWS 2] INTO y": {DEFINE, READ_S},
    "CREATE OR REPLACE VIEW w AS SELECT v FROM s [ROWS 2]": {ADMINISTER},
    "INSERT INTO s VALUES (2, 3)": {WRITE_S},
    "INSERT INTO r VALUES (2, 3)": {WRITE_R},
    "UPDATE r SET v = 2 WHERE k = 1": {WRITE_R, READ_R},
    "DELETE FROM r WHERE k = 1": {WRITE_R, READ_R},
    "STOP QUERY q": {ADMINISTER},
    "DROP QUERY q": {ADMINISTER},
    "ALTER QUERY q SET (priority = 1)": {ADMINISTER},
    "SUSPEND QUERY q": {ADMINISTER},
    "DROP RELATION r": {ADMINISTER},
    "DROP VIEW w": {ADMINISTER},
    "DESCRIBE s": {READ_S},
    "DESCRIBE r": {READ_R},
    "DESCRIBE q": {READ_Q, READ_S},
    "DESCRIBE w": {READ_W, READ_S},
    "EXPLAIN q": {READ_Q, READ_S},
    "EXPLAIN SELECT v FROM s [ROWS 2]": {READ_S},
    "EXPLAIN SELECT v FROM w": {READ_W},
    "SUBSCRIBE q": {READ_Q},
    "SUBSCRIBE q FROM START AS mine": {READ_Q},
    "CREATE SUBSCRIPTION mine FOR q": {READ_Q},
    "CREATE USER eve": {ADMINISTER},
    "CREATE ROLE watchers": {ADMINISTER},
    "GRANT DEFINE TO bob": {ADMINISTER},
    "GRANT READ ON QUERY q TO bob": {ADMINISTER},
    "REVOKE DEFINE FROM bob": {ADMINISTER, DEFINE},
    "CREATE TOKEN t FOR bob": {ADMINISTER},
    "DROP TOKEN admin": {ADMINISTER},
    "DROP USER bob": {ADMINISTER},
    "ALTER USER admin PASSWORD 'another-one'": {ADMINISTER},
    "ALTER USER bob PASSWORD 'another-one'": set(),
    "SHOW STREAMS": set(), "SHOW QUERIES": set(), "SHOW ALL QUERIES": set(), "SHOW VIEWS": set(),
    "SHOW RELATIONS": set(), "SHOW FUNCTIONS": set(), "SHOW USERS": set(), "SHOW GRANTS": set(), "SHOW TOKENS": set(),
    "SHOW SESSIONS": set(), "SHOW SUBSCRIPTIONS": set(), "SHOW ROLES": set(),
}  # fmt: skip
SETS = [(), *((right,) for right in RIGHTS), *combinations(RIGHTS, 2), (DEFINE, READ_S, READ_R)]


@pytest.mark.parametrize("grants", SETS, ids=lambda g: "+".join(g) or "none")
def test_every_statement_with_these_rights(grants: tuple[str, ...]) -> None:
    with served() as it:
        it.run(SETUP)
        bob = it.user("bob", *grants)
        seen = {grant.split()[-1] for grant in grants if " ON " in grant}
        for statement, needs in NEEDS.items():
            if needs <= {*grants}:
                if needs and not statement.startswith(("CREATE", "DROP", "INSERT", "UPDATE", "DELETE", "ALTER")):
                    it.run(statement, bob)
                continue
            before = it.service.access.state, [*it.db.queries], it.db.catalog.kind_of("x"), it.db.stream("s")
            with pytest.raises((AccessDenied, CatalogError)) as refused:
                it.run(statement, bob)
            assert before == (
                it.service.access.state, [*it.db.queries], it.db.catalog.kind_of("x"), it.db.stream("s")
            )  # fmt: skip
            for name in {"s", "r", "w", "q"} - seen:
                assert f"`{name}`" not in f"{refused.value.message} {refused.value.hint}" or f" {name}" in statement


@pytest.mark.parametrize("statement", [s for s, needs in NEEDS.items() if ADMINISTER not in needs])
def test_a_statement_is_allowed_with_what_it_needs(statement: str) -> None:
    with served() as it:
        it.run(SETUP)
        it.run(statement, it.user("bob", *NEEDS[statement]))


@pytest.mark.parametrize("statement", [*NEEDS])
def test_who_administers_may_do_everything(statement: str) -> None:
    with served() as it:
        it.run(SETUP)
        carol = it.user("carol", ADMINISTER)
        it.user("bob", DEFINE)
        it.run(statement, carol)


def test_a_role_gives_its_rights_to_its_users() -> None:
    with served() as it:
        it.run(f"{SETUP}; CREATE ROLE watchers; GRANT READ ON QUERY q TO watchers")
        bob = it.user("bob")
        with pytest.raises(CatalogError):
            it.service.current(bob, "q")
        it.run("GRANT ROLE watchers TO bob")
        assert it.service.current(bob, "q").num_rows == 1
        it.run("REVOKE ROLE watchers FROM bob")
        with pytest.raises(CatalogError):
            it.service.current(bob, "q")
        it.run("CREATE USER eve PASSWORD 'eve-password' IN ROLE watchers")
        eve = it.login("eve")
        assert it.service.current(eve, "q").num_rows == 1
        it.run("DROP ROLE watchers")
        with pytest.raises(CatalogError):
            it.service.current(eve, "q")


def test_who_defines_a_thing_owns_it() -> None:
    with served() as it:
        bob, eve = it.user("bob", "DEFINE"), it.user("eve", "DEFINE")
        it.run("CREATE STREAM b (t BIGINT) TIMESTAMP BY t; INSERT INTO b VALUES (1)", bob)
        it.run("CREATE QUERY bq AS SELECT t FROM b [ROWS 1]; ALTER QUERY bq SET (priority = 2)", bob)
        assert it.service.query(bob, "bq").owner == "bob"
        for statement in ("INSERT INTO b VALUES (2)", "STOP QUERY bq", "DROP STREAM b", "SUBSCRIBE bq"):
            with pytest.raises(CatalogError):
                it.run(statement, eve)
        it.run("STOP QUERY bq; DROP STREAM b", bob)
        assert [q.name for q in it.service.queries(bob)] == ["bq"], "who had it sees how it ended"
        assert it.service.query(bob, "bq").how == "it was stopped"
        assert it.service.queries(eve) == []
        # The name is free for others, who have nothing of the rights on what had it before.
        it.run("CREATE STREAM b (t BIGINT) TIMESTAMP BY t", eve)
        with pytest.raises(CatalogError):
            it.run("INSERT INTO b VALUES (1)", bob)


def test_grants_on_a_thing_go_with_it() -> None:
    with served() as it:
        it.run(SETUP)
        bob = it.user("bob", "READ ON QUERY q")
        it.run("STOP QUERY q; CREATE QUERY q AS SELECT v FROM s [ROWS 2]")
        with pytest.raises(CatalogError):
            it.service.feed(bob, "q")


def test_what_is_owned_belongs_to_administrators_when_its_owner_is_dropped() -> None:
    with served() as it:
        bob = it.user("bob", "DEFINE")
        it.run("CREATE STREAM b (t BIGINT) TIMESTAMP BY t", bob)
        it.run("DROP USER bob")
        with pytest.raises(LoginFailed):
            it.run("INSERT INTO b VALUES (1)", bob)
        again = it.user("bob")
        with pytest.raises(CatalogError):
            it.run("INSERT INTO b VALUES (1)", again)
        assert it.service.stream(it.admin, "b").owner is None  # type: ignore[arg-type]


def test_a_declaration_that_fails_has_no_owner() -> None:
    with served() as it:
        bob = it.user("bob", "DEFINE")
        with pytest.raises(BindError):
            it.run("CREATE STREAM b (t BIGINT) TIMESTAMP BY other", bob)
        assert it.service.access.named() == set()
        it.run("CREATE STREAM b (t BIGINT) TIMESTAMP BY t")
        with pytest.raises(CatalogError, match="already"):
            it.run("CREATE STREAM b (t BIGINT) TIMESTAMP BY t", bob)
        assert it.service.access.owner("stream", "b") == "admin"


TEMPLATES = (
    "INSERT INTO {0} VALUES (1, 2)", "UPDATE {0} SET v = 1", "DELETE FROM {0}", "DROP STREAM {0}", "DROP RELATION {0}",
    "DROP VIEW {0}", "DROP QUERY {0}", "DROP STREAM IF EXISTS {0}", "DROP QUERY IF EXISTS {0}", "STOP QUERY {0}",
    "SUSPEND QUERY {0}", "ALTER QUERY {0} SET (priority = 1)", "DESCRIBE {0}", "DESCRIBE STREAM {0}",
    "DESCRIBE QUERY {0}", "EXPLAIN {0}", "EXPLAIN SELECT * FROM {0}", "SUBSCRIBE {0}", "SUBSCRIBE {0} FROM START",
    "CREATE SUBSCRIPTION mine FOR {0}", "CREATE QUERY x AS SELECT * FROM {0} [ROWS 1]",
    "CREATE VIEW x AS SELECT * FROM {0}", "CREATE STREAM x AS SELECT ISTREAM * FROM {0} [NOW]",
    "CREATE QUERY x AS PLAN '{{\"penstock_plan\": 1, \"query\": {{\"node\": \"StreamScan\", \"stream\": \"{0}\"}}}}'",
    "CONFIRM {0} AT 1", "DROP SUBSCRIPTION {0}",
)  # fmt: skip
CALLS: dict[str, Callable[[Served, Session, str], object]] = {
    "push": lambda it, who, name: it.service.push(who, name, [(1, 2)]),
    "heartbeat": lambda it, who, name: it.service.heartbeat(who, name, 5),
    "close": lambda it, who, name: it.service.close_stream(who, name),
    "late": lambda it, who, name: it.service.late(who, name),
    "apart": lambda it, who, name: it.service.apart(who, name),
    "query": lambda it, who, name: it.service.query(who, name),
    "stop": lambda it, who, name: it.service.stop(who, name),
    "alter": lambda it, who, name: it.service.alter(who, name, {"priority": 1}),
    "current": lambda it, who, name: it.service.current(who, name),
    "feed": lambda it, who, name: it.service.feed(who, name),
    "subscription": lambda it, who, name: it.service.subscription(who, "mine", query=name),
    "own subscription": lambda it, who, name: it.service.subscription(who, name),
    "confirm": lambda it, who, name: it.service.confirm(who, name, 0),
    "stream": lambda it, who, name: it.service.stream(who, name),
    "relation": lambda it, who, name: it.service.relation(who, name),
    "rows": lambda it, who, name: it.service.rows(who, name),
    "explain": lambda it, who, name: it.service.explain(who, name),
    "explain text": lambda it, who, name: it.service.explain(who, f"SELECT * FROM {name} [ROWS 1]"),
    "create": lambda it, who, name: it.service.create_query(who, text=f"SELECT * FROM {name} [ROWS 1]"),
    "plan": lambda it, who, name: it.service.create_query(
        who, plan={"penstock_plan": 1, "query": {"node": "StreamScan", "stream": name}}
    ),
}
SECRET, ABSENT = "secret", "absent"
HIDDEN = {
    "stream": f"CREATE STREAM {SECRET} (t BIGINT, v BIGINT) TIMESTAMP BY t",
    "relation": f"CREATE RELATION {SECRET} (k BIGINT, v BIGINT)",
    "view": f"CREATE STREAM under (t BIGINT) TIMESTAMP BY t; CREATE VIEW {SECRET} AS SELECT t FROM under [ROWS 1]",
    "query": f"CREATE STREAM under (t BIGINT) TIMESTAMP BY t; CREATE QUERY {SECRET} AS SELECT t FROM under [ROWS 1]",
    "subscription": "CREATE STREAM under (t BIGINT) TIMESTAMP BY t; CREATE QUERY uq AS SELECT t FROM under [ROWS 1];"
    f"CREATE SUBSCRIPTION {SECRET} FOR uq",
}


@pytest.fixture(scope="module", params=[*HIDDEN])
def hidden(request: pytest.FixtureRequest) -> Iterator[tuple[Served, Session]]:
    """A thing of some kind that the admin has, and a user that may define things and see none of them."""
    with served() as it:
        it.run(HIDDEN[request.param])
        yield it, it.user("bob", "DEFINE")


def said(action: Callable[[], object]) -> tuple[str, str]:
    try:
        return "gave", str(action())
    except PenstockError as error:
        return type(error).__name__, f"{error} {error.hint}"


@pytest.mark.parametrize("template", TEMPLATES)
def test_what_is_hidden_is_as_if_it_were_not_there(hidden: tuple[Served, Session], template: str) -> None:
    it, bob = hidden
    secret, absent = (said(lambda n=name: it.run(template.format(n), bob)) for name in (SECRET, ABSENT))  # type: ignore[misc]
    assert secret == (absent[0], absent[1].replace(ABSENT, SECRET))
    assert it.service.subscriptions(bob) == []


@pytest.mark.parametrize("call", CALLS)
def test_calls_tell_nothing_of_what_is_hidden(hidden: tuple[Served, Session], call: str) -> None:
    it, bob = hidden
    secret, absent = (said(lambda n=name: CALLS[call](it, bob, n)) for name in (SECRET, ABSENT))  # type: ignore[misc]
    assert secret == (absent[0], absent[1].replace(ABSENT, SECRET))


def test_lists_have_nothing_of_what_is_hidden(hidden: tuple[Served, Session]) -> None:
    it, bob = hidden
    service = it.service
    for listed in (service.streams, service.relations, service.views, service.queries, service.subscriptions):
        assert listed(bob) == []
    assert {name for name in service.tables(bob) if not name.startswith("sys.")} == set()
    shown = [it.run(s, bob)[0].table for s in NEEDS if s.startswith("SHOW") and s != "SHOW FUNCTIONS"]
    tables = [*shown, *(service.sys_table(bob, name) for name in SYS), service.metrics(bob, "queries")]
    for text in (*(str(table.to_pylist()) for table in tables if table is not None), service.graph(bob)):
        assert SECRET not in text
        assert "under" not in text
        assert "admin" not in text.replace("'admin': False", "")


def test_an_error_of_a_drop_names_no_hidden_reader() -> None:
    with served() as it:
        bob = it.user("bob", "DEFINE")
        it.run("CREATE STREAM b (t BIGINT) TIMESTAMP BY t", bob)
        it.run("CREATE QUERY spying AS SELECT t FROM b [ROWS 1]")
        with pytest.raises(CatalogError, match="is used by") as refused:
            it.run("DROP STREAM b", bob)
        assert "spying" not in str(refused.value)


def test_who_may_read_a_query_alone_sees_results_and_not_how_it_is_made() -> None:
    with served() as it:
        it.run(SETUP)
        bob = it.user("bob", "READ ON QUERY q")
        info = it.service.query(bob, "q")
        assert (info.text, info.reads, info.may_change) == (None, (), False)
        assert info.schema is not None
        assert info.schema.names == ["ts", "op", "v", "n"]
        assert it.service.current(bob, "q").to_pylist() == [{"v": 2, "n": 1}]
        for look in (lambda: it.service.explain(bob, "q"), lambda: it.run("DESCRIBE q", bob)):
            with pytest.raises(AccessDenied):
                look()
        assert '"queries": []' in it.service.graph(bob)
        assert it.run("SHOW QUERIES", bob)[0].table.column("text").to_pylist() == [""]  # type: ignore[union-attr]


def test_a_right_that_is_revoked_ends_at_once() -> None:
    with served() as it:
        it.run(SETUP)
        bob = it.user("bob", "READ ON QUERY q")
        feed = it.service.feed(bob, "q")
        assert feed.read(0).table.num_rows == 1
        it.run("REVOKE READ ON QUERY q FROM bob")
        with pytest.raises(AccessDenied):
            feed.read(0)


def test_somebody_always_administers() -> None:
    with served() as it:
        for statement in ("DROP USER admin", "REVOKE ADMINISTER FROM admin"):
            with pytest.raises(AccessDenied, match="nobody would administer"):
                it.run(statement)
        carol = it.user("carol", "ADMINISTER")
        it.run("DROP USER admin", carol)
        with pytest.raises(AccessDenied, match="nobody would administer"):
            it.run("DROP USER carol", carol)


def test_sources_and_python_functions_are_for_administrators() -> None:
    with served() as it:
        bob = it.user("bob", "DEFINE")
        with pytest.raises(AccessDenied, match="FROM spark"):
            it.run("CREATE STREAM f (a STRING) FROM spark (format = 'text', path = '/etc/passwd')", bob)
        source = "def twice(x):\n    return 2 * x\n"
        for who, match in ((bob, "Python functions"), (it.admin, "runs no Python functions")):
            assert who is not None
            with pytest.raises(AccessDenied, match=match):
                it.service.create_function(who, "twice", source, args=["BIGINT"], returns="BIGINT")


def test_refusals_and_declarations_are_written_down(caplog: pytest.LogCaptureFixture) -> None:
    with served() as it, caplog.at_level("INFO", logger="penstock.audit"):
        bob = it.user("bob", "DEFINE")
        it.run("CREATE STREAM b (t BIGINT) TIMESTAMP BY t", bob)
        with pytest.raises(AccessDenied):
            it.run("CREATE USER eve", bob)
        with pytest.raises(LoginFailed):
            it.service.login("bob", "wrong-password", protocol="http", remote="10.0.0.9")
        text = "\n".join(caplog.messages)
        assert "CREATE STREAM b (t BIGINT) TIMESTAMP BY t" in text
        assert '"what": "denied"' in text
        assert '"remote": "10.0.0.9"' in text
        assert "bob-password" not in text
