"""The tables of a plain SELECT: what a user may read, all taken at one moment; and the tables of ``sys``."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from penstock import QueryFailed
from penstock.server.looking import SYS
from penstock.server.subscriptions import Subscriptions
from tests.server.serving import Served, served

SETUP = """
CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t WITH (retain = 'all');
CREATE STREAM bare (t BIGINT, ts STRING) TIMESTAMP BY t;
CREATE RELATION r (k BIGINT, v STRING) KEY (k);
CREATE QUERY a AS SELECT count(*) AS n FROM s [RANGE UNBOUNDED];
CREATE QUERY b AS SELECT count(*) AS n FROM s [RANGE UNBOUNDED];
CREATE QUERY news AS SELECT ISTREAM v FROM s [NOW];
INSERT INTO s VALUES (1, 10), (2, 20);
INSERT INTO r VALUES (7, 'x')
"""


def tables(it: Served, *names: str) -> list[list[dict[str, Any]]]:
    """Tables of one SELECT that names them."""
    assert it.admin is not None
    moment = it.service.moment(it.admin, "SELECT * FROM " + ", ".join(names))
    return [moment[name]().to_pylist() for name in names]


def test_what_there_is_to_select_from() -> None:
    with served() as it:
        it.run(SETUP)
        assert tables(it, "a", "r") == [[{"n": 2}], [{"k": 7, "v": "x"}]]
        rows = [{"ts": 1, "op": "+", "v": 10}, {"ts": 2, "op": "+", "v": 20}]
        retained = [{"ts": r["ts"], "op": "+", "t": r["ts"], "v": r["v"]} for r in rows]
        assert tables(it, "news", "s", "bare") == [rows, retained, []]
        assert it.admin is not None
        schemas = it.service.tables(it.admin)
        assert schemas["bare"].names == ["ts", "op", "t", "ts_2"]
        assert schemas["a"].names == ["n"]
        assert {name for name in schemas if name.startswith("sys.")} == {f"sys.{name}" for name in SYS}
        moment = it.service.moment(it.admin, "SELECT * FROM a, news, s, r")
        assert all(moment[name]().schema == schemas[name] for name in ("a", "news", "s", "r"))


def test_only_what_the_user_may_read_is_there() -> None:
    with served() as it:
        it.run(SETUP)
        bob = it.user("bob", "READ ON QUERY a", "READ ON RELATION r", "WRITE ON STREAM s")
        assert {name for name in it.service.moment(bob, "a") if not name.startswith("sys.")} == {"a", "r"}


def test_a_query_hides_a_stream_of_its_name() -> None:
    with served() as it:
        it.run(f"{SETUP}; CREATE QUERY s AS SELECT max(v) AS m FROM s [RANGE UNBOUNDED]; INSERT INTO s VALUES (3, 30)")
        assert tables(it, "s") == [[{"m": 30}]]


def test_all_tables_are_taken_at_one_moment() -> None:
    """While other threads push, two queries that count the same rows are never seen apart."""
    with served() as it:
        it.run(SETUP)
        done = threading.Event()

        def push() -> None:
            t = 100
            while not done.is_set():
                it.db.push("s", [(t := t + 1, 1)])

        threads = [threading.Thread(target=push) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(100):
                a, s, b, queries = tables(it, "a", "s", "b", "sys.queries")
                assert a == b == [{"n": len(s)}]
                assert len({q["progress"] for q in queries}) == 1
        finally:
            done.set()
            for thread in threads:
                thread.join()


def test_a_query_that_failed_is_not_selected_from() -> None:
    with served() as it:
        it.run(f"{SETUP}; CREATE QUERY bad AS SELECT 1 / v AS x FROM s [ROWS 1] WITH (strict = true)")
        it.run("INSERT INTO s VALUES (5, 0)")
        with pytest.raises(QueryFailed):
            tables(it, "bad")
        (queries,) = tables(it, "sys.queries")
        assert [(q["name"], q["status"]) for q in queries if q["status"] != "running"] == [("bad", "failed")]


def test_who_confirms_does_not_stop_who_looks() -> None:
    """A confirmation waits for the database's lock, which the one who looks has."""
    entered, go_on = threading.Event(), threading.Event()

    def save(notes: Mapping[str, Any]) -> None:
        entered.set()
        go_on.wait(60)

    go_on.set()
    subscriptions = Subscriptions({}, save, 10)
    subscriptions.create("mine", "q", "bob", 0)
    entered.clear()
    go_on.clear()
    thread = threading.Thread(target=subscriptions.confirm, args=("mine", 5))
    thread.start()
    assert entered.wait(60)
    looked: list[int] = []
    looker = threading.Thread(target=lambda: looked.extend(s.position for s in subscriptions.all))
    looker.start()
    looker.join(60)
    go_on.set()
    thread.join()
    assert looked == [0], "it counts when it is written down"
    assert subscriptions.all[0].position == 5
