"""Plan objects: a scan needs its name alone; what is said of it besides has to be what is declared."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import penstock

DECLARE = """
CREATE STREAM s (t BIGINT, k STRING, v DOUBLE) TIMESTAMP BY t;
CREATE RELATION names (k STRING, name STRING) KEY (k);
CREATE STREAM high AS SELECT ISTREAM k, v FROM s [RANGE 5] WHERE v > 3;
CREATE VIEW low AS SELECT k FROM s WHERE v < 1;
CREATE STREAM clocked (at TIMESTAMP, k STRING) TIMESTAMP BY at;
"""
Plan = dict[str, Any]


def column(index: int, type: str) -> Plan:
    return {"expr": "Column", "index": index, "type": type}


def plan_of(scan: Plan, **query: object) -> Plan:
    """All rows of a stream, as they come."""
    window = {"node": "Window", "input": scan, "spec": {"window": "Unbounded"}}
    return {"penstock_plan": 1, "query": {"node": "Query", "input": window, "output": "istream", **query}}


def joined(left: Plan, right: Plan) -> Plan:
    """Rows of a stream with those of a relation, by their keys."""
    window = {"node": "Window", "input": left, "spec": {"window": "Unbounded"}}
    keys = [[column(1, "STRING"), column(0, "STRING")]]
    node = {"node": "Join", "kind": "inner", "right": right, "left": window, "keys": keys}
    return {"penstock_plan": 1, "query": {"node": "Query", "input": node, "output": "istream"}}


def test_a_scan_needs_its_name_alone(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(DECLARE)
        db.push("names", [("a", "Anna")])
        scan = {"node": "StreamScan", "stream": "S"}
        all_rows = db.query(plan=plan_of(scan), name="all_rows")
        pairs = db.query(plan=joined(scan, {"node": "RelationScan", "relation": "Names"}))
        high = db.query(plan=json.dumps(plan_of({"node": "StreamScan", "stream": "high"}, masters=["HIGH"])))
        same = db.query(plan=plan_of({"node": "QueryStream", "name": "High"}))
        db.push("s", [(1, "a", 4.0), (2, "b", 1.0)])
        assert all_rows.fetch()["v"].to_pylist() == [4.0, 1.0]
        assert pairs.fetch()["name"].to_pylist() == ["Anna"]
        assert high.fetch().to_pylist() == same.fetch().to_pylist() == [{"ts": 1, "op": "+", "k": "a", "v": 4.0}]
        assert all_rows.plan.clock == "ticks"
        assert (set(pairs.reads), set(high.reads)) == ({"s", "names"}, {"high"})
        with pytest.raises(penstock.CatalogError, match="`high` is used by query"):
            db.execute("DROP STREAM high")


def test_a_plan_of_python_is_looked_at_too() -> None:
    with penstock.connect(engine="local") as db, penstock.connect(engine="local") as other:
        db.execute(DECLARE)
        other.execute("CREATE STREAM before (a INT)")
        other.execute(DECLARE)
        plan = db.query("SELECT k FROM s").plan
        with pytest.raises(penstock.PlanError, match="stream `s` has position 1, not 0"):
            other.query(plan=plan)


SCAN: Plan = {
    "node": "StreamScan",
    "stream": "s",
    "schema": [{"name": "t", "type": "BIGINT"}, {"name": "K", "type": "STRING"}, {"name": "v", "type": "DOUBLE"}],
    "position": 0,
    "clock": "ticks",
}
AT = "query.input.input"


@pytest.mark.parametrize(
    ("scan", "error"),
    [
        ({**SCAN, "position": 3}, f"{AT}.position: stream `s` has position 0, not 3; leave `position` out"),
        ({**SCAN, "clock": "timestamp"}, f"{AT}.clock: stream `s` has the clock 'ticks', not 'timestamp'; leave"),
        (
            {**SCAN, "schema": SCAN["schema"][:2]},
            f"{AT}.schema: stream `s` has columns (t BIGINT, k STRING, v DOUBLE), not (t BIGINT, K STRING)",
        ),
        ({**SCAN, "stream": "names"}, f"{AT}: `names` is a relation, not what a StreamScan reads; write "),
        ({**SCAN, "stream": "low"}, f"{AT}: `low` is a view, a plan reads streams and relations; EXPLAIN"),
        ({**SCAN, "stream": "t"}, f"{AT}: no stream, relation or view `t`"),
        ({**SCAN, "column": 1}, f"{AT}: unknown field `column`"),
        ({"node": "StreamScan"}, f"{AT}: field `stream` is missing"),
        ({"node": "QueryStream", "name": "s"}, f"{AT}: stream `s` is not derived from a query; write "),
        ({**SCAN, "stream": "high"}, f"{AT}.schema: stream `high` has columns (k STRING, v DOUBLE), not (t BIGINT"),
    ],
)
def test_what_contradicts_the_catalog_is_refused(scan: Plan, error: str) -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        assert db.query(plan=plan_of(copy.deepcopy(SCAN))).status == "running"
        with pytest.raises(penstock.PenstockError) as caught:
            db.query(plan=plan_of(scan))
        assert str(caught.value).startswith(error)
        assert len(db.queries) == 1


def changed(plan: Plan, at: str, value: object) -> Plan:
    made = copy.deepcopy(plan)
    *path, last = at.split(".")
    inside = made["query"]
    for key in path:
        inside = inside[key]
    inside[last] = value
    return made


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [
        ("clock", "timestamp", "query.clock: stream `high` has the clock 'ticks', not 'timestamp'"),
        ("input.input.position", 0, "query.input.input.position: stream `high` has position 2, not 0"),
        ("input.input.name", "s", "query.input.input.name: stream `s` is not derived from a query; give the sub-query"),
        ("masters", ["low"], "query.masters[0]: no stream `low` in the query"),
    ],
)
def test_a_query_has_the_clock_of_its_streams(at: str, value: object, error: str) -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        plan = json.loads(db.explain("SELECT k FROM high", format="json"))
        plan = changed(plan, "input", {"node": "Window", "input": _stream(plan), "spec": {"window": "Now"}})
        assert db.query(plan=plan).status == "running"
        with pytest.raises(penstock.PlanError) as caught:
            db.query(plan=changed(plan, at, value))
        assert str(caught.value).startswith(error)


def _stream(plan: Plan) -> Plan:
    found = plan["query"]
    while found["node"] != "QueryStream":
        found = found["input"]
    return dict(found)


def test_a_sub_query_comes_behind_what_is_declared() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        text = "SELECT x.k FROM s [ROWS 1], (SELECT ISTREAM k FROM s [ROWS 2]) [ROWS 1] AS x"
        plan = json.loads(db.explain(text, format="json"))
        db.execute("CREATE STREAM later (t BIGINT) TIMESTAMP BY t")
        assert db.query(plan=plan).status == "running"
        wrong = json.loads(json.dumps(plan).replace('"position": 4', '"position": 0'))
        with pytest.raises(penstock.PlanError, match="sub-query `x` has position 0, a source beside it 0"):
            db.query(plan=wrong)


def test_streams_of_two_clocks_are_refused() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        clocked = {"node": "StreamScan", "stream": "clocked"}
        right = {"node": "Window", "input": clocked, "spec": {"window": "Now"}}
        with pytest.raises(penstock.PlanError, match="`s` counts ticks and `clocked` has a TIMESTAMP clock"):
            db.query(plan=joined({"node": "StreamScan", "stream": "s"}, right))


def test_functions_are_those_that_there_are() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        db.create_function("shout", _shout, args=["STRING"], returns="STRING")
        plan = json.loads(db.explain("SELECT shout(k) AS loud FROM s", format="json"))
        text = json.dumps(plan)
        loud = db.query(plan=text.replace('"shout"', '"Shout"'))
        db.push("s", [(1, "a", 1.0)])
        assert loud.fetch()["loud"].to_pylist() == ["A!"]
        with pytest.raises(penstock.PlanError, match="there is no function `whisper` of yours"):
            db.query(plan=text.replace('"shout"', '"whisper"'))
        db.create_function("shout", _shout, args=["STRING"], returns="BIGINT")
        with pytest.raises(penstock.PlanError, match=r"is shout\(STRING\) → BIGINT, not shout\(STRING\) → STRING"):
            db.query(plan=text)


def _shout(text: str) -> str:
    return text.upper() + "!"


@pytest.mark.parametrize("engine", ["local", "spark"], indirect=True)
@pytest.mark.parametrize(
    "sql", ["SELECT k, v FROM s ORDER BY v DESC LIMIT 2", "SELECT k, sum(v) AS n FROM s GROUP BY k"]
)
def test_a_plan_goes_on_after_a_restart(engine: str, tmp_path: Path, sql: str) -> None:
    def connect() -> penstock.Database:
        return penstock.connect(tmp_path / "db", engine=engine)

    with connect() as db:
        db.execute(DECLARE)
        db.query(sql, name="by_text")
        db.query(plan=db.explain("by_text", format="json"), name="by_plan")
        db.push("s", [(1, "a", 4.0), (2, "b", 1.0)])
    with connect() as db:
        db.push("s", [(3, "a", 2.0)])
        text, plan = db.queries["by_text"], db.queries["by_plan"]
        assert sorted(map(str, plan.fetch().to_pylist())) == sorted(map(str, text.fetch().to_pylist())) != []
        assert plan.current().to_pylist() == text.current().to_pylist()
