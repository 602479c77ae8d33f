"""What every operator of the graph does besides its work: count, tell how far it is, say that it has ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from penstock.database.database import core_of
from penstock.graph.vertices import OperatorVertex
from penstock.hosts.local.host import LocalHost

DECLARE = "CREATE STREAM s (t BIGINT, a BIGINT) TIMESTAMP BY t; CREATE STREAM r (t BIGINT, a BIGINT) TIMESTAMP BY t"


@pytest.fixture
def db() -> Iterator[penstock.Database]:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        yield db


def vertices(db: penstock.Database, kind: str) -> list[OperatorVertex]:
    host = core_of(db).host
    assert isinstance(host, LocalHost)
    return [v for v in host.graph.vertices.values() if v.kind == kind]


@pytest.mark.parametrize("threading", ["direct", "operator"])
def test_observers_hear_once_that_an_operator_has_ended(db: penstock.Database, threading: str) -> None:
    db.query("SELECT s.a FROM s [RANGE 5] JOIN r [RANGE 5] ON s.a = r.a")
    heard: list[str] = []
    for kind in ("window", "join"):
        for vertex in vertices(db, kind):
            vertex.observers.append(lambda v: heard.append(v.kind))
    db.configure(threading=threading)
    db.push("s", [(1, 1)])
    db.push("r", [(1, 1)])
    db.close_stream("s")
    db.settle()
    assert heard == ["window"]
    db.close_stream("r")
    db.settle()
    assert sorted(heard) == ["join", "window", "window"]


def test_flushing_tells_successors_how_far_an_operator_is(db: penstock.Database) -> None:
    query = db.query("SELECT a FROM s WHERE a > 5")
    db.push("s", [(1, 1), (2, 2)])
    (filter,), (window,) = vertices(db, "filter"), vertices(db, "window")
    # Nobody needed to hear of rows that did not pass.
    assert window.mark.frontier < filter.mark.frontier
    filter.flush()
    assert window.mark.frontier == filter.mark.frontier
    assert query.fetch().num_rows == 0


def test_counts(db: penstock.Database) -> None:
    db.query("SELECT a, count(*) AS n FROM s [RANGE 10] WHERE a < 50 GROUP BY a")
    for i in range(0, 100, 20):
        db.push("s", [(j, j) for j in range(i, i + 20)])
    found = {o.kind: o for o in db.graph().operators}
    assert (found["filter"].elements_in, found["filter"].elements_out, found["filter"].selectivity) == (100, 50, 0.5)
    assert (found["window"].elements_in, found["window"].elements_out, found["window"].rows) == (50, 100, 0)
    assert found["window"].calls == 5
    for kind in ("filter", "window", "aggregate"):
        assert (found[kind].cost or 0) > 0
        assert (found[kind].interarrival or 0) > 0
    assert found["query"].elements_out == db.queries["q1"].answered
