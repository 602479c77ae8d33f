"""Texts of clients: cutting, parameters, and the statements that only a server knows."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import AccessDenied, BindError, CatalogError, CqlSyntaxError, InputError, LimitExceeded, PenstockError
from penstock.model.types import BIGINT, STRING
from penstock.server.settings import Settings
from penstock.server.statements import (
    Confirm,
    CreateToken,
    SubscribeTo,
    literal,
    parameter_count,
    pieces,
    server_statement,
    spliced,
)
from tests.budget import examples
from tests.server.serving import served


def one(text: str) -> object:
    (piece,) = pieces(text)
    return server_statement(piece)


def test_a_text_is_cut_into_statements() -> None:
    text = "SELECT ';' ; -- a; b\n/* c; /* d; */ ; */ SHOW \"x;y\";; \n INSERT INTO s VALUES ('it''s;')"
    found = pieces(text)
    assert [p.text for p in found] == ["SELECT ';'", 'SHOW "x;y"', "INSERT INTO s VALUES ('it''s;')"]
    for piece in found:
        assert piece.in_place[piece.start :] == piece.text
        assert piece.in_place[: piece.start].strip() == ""
        assert piece.in_place.count("\n") == text[: piece.end].count("\n")
    assert pieces(" -- nothing\n;") == []


def test_statements_of_a_server() -> None:
    assert one("SUBSCRIBE Q") == SubscribeTo("q", None)
    assert one('subscribe to "Q" from 17 as mine') == SubscribeTo("Q", 17, "mine")
    assert one("CONFIRM mine AT 5") == Confirm("mine", 5)
    assert one("CREATE TOKEN t FOR bob EXPIRES '1 day'") == CreateToken("t", "bob", 86_400_000_000)
    for text in ("CREATE STREAM user (a INT)", "SHOW STREAMS", "DROP QUERY token", "SELECT 1"):
        assert one(text) is None


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        ("SUBSCRIBE", (1, 10), "the name of a query"),
        ("SUBSCRIBE q FROM yesterday", (1, 18), "START, NOW or a position"),
        ("SUBSCRIBE q FROM 1.5", (1, 18), "a whole number"),
        ("GRANT SELECT ON QUERY q TO bob", (1, 7), "DEFINE, ADMINISTER, WRITE, READ or ROLE"),
        ("GRANT WRITE ON QUERY q TO bob", (1, 16), "STREAM or RELATION"),
        ("GRANT READ ON QUERY q FROM bob", (1, 23), "TO"),
        ("REVOKE READ ON QUERY q TO bob", (1, 24), "FROM"),
        ("CREATE USER bob\n  PASSWORD secret", (2, 12), "the password in quotes"),
        ("CREATE TOKEN t FOR bob EXPIRES '30 days' now", (1, 42), "the end of the statement"),
        ("CREATE TOKEN t FOR bob EXPIRES '0 days'", (1, 32), "a time that is not over"),
        ("SHOW USERS please", (1, 12), "the end of the statement"),
    ],
)
def test_errors_say_where_and_what(text: str, at: tuple[int, int], expected: str) -> None:
    with pytest.raises(CqlSyntaxError) as refused:
        one(text)
    position = refused.value.position
    assert position is not None
    assert (position.line, position.column) == at
    assert refused.value.hint == f"expected {expected}"


def test_an_error_in_a_later_statement_shows_its_place_in_the_whole_text() -> None:
    with served() as it:
        text = "SHOW STREAMS; CREATE STREAM s (t BIGINT);\nSHOW USERS; INSERT INTO nothing VALUES (1)"
        with pytest.raises(CatalogError) as refused:
            it.run(text)
        position = refused.value.position
        assert position is not None
        assert (position.line, position.column) == (2, 25)
        assert refused.value.text == text
        assert it.db.catalog.kind_of("s") == "stream", "the ones before it stay done"


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    st.floats(allow_nan=False, allow_infinity=False), st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),
    st.dates(date(1900, 1, 1), date(2200, 1, 1)), st.timedeltas(timedelta(days=-1000), timedelta(days=1000)),
    st.decimals(-(10**9), 10**9, places=4),
)  # fmt: skip
COLUMNS = {
    bool: "b", int: "i", str: "s", float: "f", datetime: "ts", date: "d", timedelta: "v", Decimal: "n",
}  # fmt: skip


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(values, min_size=1, max_size=3))
def test_parameters_are_the_values_that_were_given(given: list[object]) -> None:
    """Put into a relation by INSERT with parameters, values come out as they went in."""
    with served() as it:
        it.run("CREATE RELATION r (k BIGINT, b BOOLEAN, i BIGINT, s STRING, f DOUBLE, ts TIMESTAMP, d DATE, "
               "v INTERVAL, n DECIMAL(18, 4)) KEY (k)")  # fmt: skip
        for k, value in enumerate(given):
            column = COLUMNS.get(type(value), "i")
            assert it.run(f"INSERT INTO r (k, {column}) VALUES (?, ?)", None, k, value)[0].tag == "INSERT 0 1"
        assert it.admin is not None
        rows = sorted(it.service.rows(it.admin, "r").to_pylist(), key=lambda row: row["k"])
        for row, value in zip(rows, given, strict=True):
            assert row[COLUMNS.get(type(value), "i")] == value


def test_parameters_stand_where_they_are_marked() -> None:
    assert spliced("INSERT INTO s VALUES ($2, '$1 ?', $1) -- ?", ["a'b", None]) == (
        "INSERT INTO s VALUES (NULL, '$1 ?', 'a''b') -- ?"
    )
    assert spliced("SELECT 1 -$1", [-2]) == "SELECT 1 - -2"
    assert parameter_count("SELECT $1, '$9', $3 -- $7") == 3
    assert parameter_count("SELECT ?, ?, \"?\"") == 2
    assert literal(float("nan")) == "CAST('nan' AS DOUBLE)"
    with pytest.raises(BindError, match="no value for parameter"):
        spliced("SELECT $2", [1])
    with pytest.raises(InputError):
        literal(object())


def test_what_a_statement_takes_and_gives() -> None:
    with served() as it:
        it.run("CREATE STREAM s (t BIGINT, name STRING) TIMESTAMP BY t; CREATE QUERY q AS SELECT name FROM s [ROWS 1]")
        admin = it.admin
        assert admin is not None
        describe = it.service.describe
        assert describe(admin, "INSERT INTO s VALUES ($1, $2), (4, $3)") == ([BIGINT, STRING, STRING], None)
        assert describe(admin, "INSERT INTO s (name, t) VALUES (?, ?)") == ([STRING, BIGINT], None)
        assert describe(admin, "INSERT INTO s VALUES (1, upper($1))") == ([None], None)
        assert describe(admin, "CREATE STREAM x (t BIGINT)") == ([], None)
        shown = describe(admin, "SHOW STREAMS")[1]
        assert shown is not None
        assert shown.names[0] == "stream"
        assert describe(admin, "SUBSCRIBE q")[1] == it.db.queries["q"].schema
        assert describe(admin, "CREATE TOKEN t FOR admin")[1].names == ["token"]  # type: ignore[union-attr]
        assert it.run("SHOW TOKENS")[0].message == "1 token", "nothing was made"
        assert describe(admin, "  ") == ([], None)


def test_limits_are_kept() -> None:
    with served(settings=Settings(statement=100, rows=3, subscriptions=1)) as it:
        it.run("CREATE STREAM s (t BIGINT) TIMESTAMP BY t; CREATE QUERY q AS SELECT t FROM s [ROWS 1]")
        assert it.admin is not None
        with pytest.raises(LimitExceeded, match="101 characters"):
            it.run("x" * 101)
        with pytest.raises(LimitExceeded, match="4 rows at once"):
            it.service.push(it.admin, "s", [(i,) for i in range(4)])
        assert it.db.stream("s").given == 0
        it.run("CREATE SUBSCRIPTION a FOR q")
        with pytest.raises(LimitExceeded, match="1 subscriptions"):
            it.run("CREATE SUBSCRIPTION b FOR q")


def test_a_push_says_what_became_of_the_rows() -> None:
    with served() as it:
        it.run("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t WITH (on_error = 'apart')")
        it.run("CREATE RELATION r (k BIGINT)")
        push, admin = it.service.push, it.admin
        assert admin is not None
        assert push(admin, "S", [(5, 1)]).rows == 1
        pushed = push(admin, "s", [(1, 1), (6, "x"), (7, 1)])
        assert (pushed.rows, pushed.apart, pushed.late) == (2, 1, 1)
        assert push(admin, "r", [(1,), (2,)]).rows == 2
        assert push(admin, "s", [(8, 1)], key=("p", 1)).rows == push(admin, "s", [(8, 1)], key=("p", 1)).rows
        assert it.service.sys_table(admin, "late").to_pylist() == [{"stream": "s", "row": '{"t": 1, "v": 1}'}]
        failed = it.service.sys_table(admin, "failed").to_pylist()
        assert [(row["stream"], row["column"]) for row in failed] == [("s", "v")]
        assert it.service.late(admin, "s").num_rows == 1
        assert it.service.sys_table(admin, "late").num_rows == 0
        info = it.service.stream(admin, "s")
        assert (info.given, info.late, info.apart, info.newest) == (5, 1, 1, 8)


def test_queries_by_calls() -> None:
    with served() as it:
        it.run("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
        service, admin = it.service, it.admin
        assert admin is not None
        made = service.create_query(admin, text="SELECT v FROM s [ROWS 2]", name="hot", options={"priority": 9})
        assert (made.name, made.status, made.options, made.owner) == ("hot", "running", {"priority": 9}, "admin")
        plan = service.explain(admin, "hot", "json")
        assert service.create_query(admin, plan=plan).name == "q1"
        assert service.create_query(admin, text="CREATE QUERY named AS SELECT v FROM s [ROWS 1]").name == "named"
        assert service.access.owner("query", "q1") == "admin"
        assert service.suspend(admin, "hot").status == "suspended"
        assert service.resume(admin, "hot").status == "running"
        assert service.alter(admin, "hot", {"priority": None}).options == {}
        it.db.push("s", [(1, 4)])
        assert service.current(admin, "hot").to_pylist() == [{"v": 4}]
        ended = service.stop(admin, "hot")
        assert (ended.status, ended.how, ended.next) == ("stopped", "it was stopped", 1)
        assert [q.name for q in service.queries(admin, ended=False)] == ["q1", "named"]
        stream = service.create_query(admin, text="SELECT ISTREAM v FROM s [NOW]", name="news")
        assert not stream.stands
        it.db.push("s", [(2, 5)])
        assert service.current(admin, "news").to_pylist() == [{"v": 5}]
        with pytest.raises(CatalogError, match="no query `hto`"):
            service.query(admin, "hto")
        with pytest.raises(PenstockError):
            service.create_query(admin, text="SELECT nothing FROM s", name="bad")
        assert service.access.owner("query", "bad") is None


def test_a_continuous_query_needs_a_name() -> None:
    with served() as it:
        it.run("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
        with pytest.raises(BindError, match="needs a name here"):
            it.run("ISTREAM (SELECT t FROM s [ROWS 1])")


def test_a_function_of_a_client_runs_where_the_settings_allow_it() -> None:
    with served(settings=Settings(functions=True)) as it:
        it.run("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
        assert it.admin is not None
        source = "def twice(x):\n    return 2 * x\n"
        with pytest.raises(AccessDenied):
            it.service.create_function(it.user("bob", "DEFINE"), "twice", source, args=["BIGINT"], returns="BIGINT")
        it.service.create_function(it.admin, "twice", source, args=["BIGINT"], returns="BIGINT")
        it.run("CREATE QUERY q AS SELECT twice(t) AS d FROM s [ROWS 1]; INSERT INTO s VALUES (4)")
        assert it.service.current(it.admin, "q").to_pylist() == [{"d": 8}]
        with pytest.raises(CatalogError, match="no function `other`"):
            it.service.create_function(it.admin, "other", source, args=["BIGINT"], returns="BIGINT")
