"""Results that lack something say so: what is not marked is what the reference gives with all rows."""

from __future__ import annotations

import math
from collections import Counter

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.hosts.incomplete import Incomplete
from tests.budget import examples
from tests.generated.language import DECLARE, Case, Row, cases
from tests.generated.running import Feed, comparable
from tests.generated.test_engines import feeds

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
Found = list[tuple[object, ...]]


def rows_of(table: pa.Table) -> Found:
    columns = [table.column(i).to_pylist() for i in range(table.num_columns)]
    return [tuple(comparable(v) for v in row) for row in zip(*columns, strict=True)]


def declared(overflow: str) -> str:
    return DECLARE.format(slack_s=overflow, slack_r="", priority_s="", priority_r="")


def begun(db: penstock.Database, case: Case, overflow: str) -> penstock.Query:
    db.execute(declared(overflow))
    if case.beginning:
        db.push("q", list(case.beginning))
    query = db.query(case.query)
    if case.relation:
        db.push("q", [{"k": r[0], "name": r[1], "ts": at, "op": op} for at, op, r in case.relation])
    return query


def truth(case: Case, feed: Feed) -> Found:
    with penstock.connect(engine="reference") as db:
        query = begun(db, case, "")
        for name, rows in feed:
            db.push(name, rows)
        for name in case.streams:
            db.close_stream(name)
        return rows_of(query.fetch())


def intakes(db: penstock.Database) -> list[int]:
    return [o.id for o in db.graph().operators if o.kind == "intake" and o.label == "stream s"]


def stretches(marks: tuple[Incomplete, ...], found: Found) -> list[tuple[float, float]]:
    """When results may lack something: as a query says, and up to the first result after each gap."""
    said: list[tuple[float, float]] = []
    for mark in marks:
        since = -math.inf if mark.since is None else mark.since
        until = math.inf if mark.until is None else mark.until
        for place in (mark.position, mark.latest):
            if place is not None:
                at = found[place][0]
                assert isinstance(at, int)
                until = max(until, at)
        said.append((since, math.inf if mark.after is not None else until))
    return said


@settings(max_examples=examples(200), deadline=None, suppress_health_check=RELAXED)
@given(case=cases(), bound=st.integers(1, 4), data=st.data())
def test_results_that_dropped_rows_touch_are_marked(case: Case, bound: int, data: st.DataObject) -> None:
    feed = data.draw(feeds(case))
    rests = data.draw(st.lists(st.booleans(), min_size=len(feed), max_size=len(feed)))
    wanted = truth(case, feed)
    tables = []
    with penstock.connect(engine="local") as db:
        query = begun(db, case, f" WITH (buffer = '{bound} rows', overflow = 'drop oldest')")
        resting: list[int] = []
        for (name, rows), rest in zip(feed, rests, strict=True):
            if rest and not resting:
                resting = intakes(db)
                for operator in resting:
                    db.suspend(operator)
            elif not rest:
                for operator in resting:
                    db.resume(operator)
                resting = []
                tables.append(query.fetch())
            db.push(name, rows)
        for operator in resting:
            db.resume(operator)
        tables.append(query.fetch())
        for name in case.streams:
            db.close_stream(name)
        tables.append(query.fetch())
        marks, dropped = query.incomplete, bool(db.graph().dropped)
    found = [row for table in tables for row in rows_of(table)]
    said = stretches(marks, found)
    assert dropped or not marks

    def kept(rows: Found) -> Counter[tuple[object, ...]]:
        """Results at instants of which nothing is said."""
        return Counter(row for row in rows if not any(a <= float(str(row[0])) <= b for a, b in said))

    assert kept(found) == kept(wanted), f"{case}\n  {feed} {rests} {bound}\n  {marks}"
    at = 0
    for table in tables:
        touched = any(
            any(mark.covers(int(str(row[0]))) for row in rows_of(table))
            or any(p is not None and at <= p < at + table.num_rows for p in mark.places)
            for mark in marks
        )
        flag = (table.schema.metadata or {}).get(b"penstock.incomplete")
        assert flag in (b"true", None)
        if not touched:
            assert flag is None
        at += table.num_rows


WINDOWS = st.builds(
    "[BEGIN WINDOW {} END WINDOW {} HOP SIZE ({}, {}){}]".format,
    st.integers(0, 12), st.integers(13, 20), st.integers(-4, 4), st.integers(-4, 4),
    st.sampled_from([" END QUERY 0", " END QUERY 2", " END QUERY 8", " END QUERY 30"]),
)  # fmt: skip
ROWS = st.lists(st.integers(0, 3), max_size=8)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=RELAXED)
@given(
    window=st.one_of(WINDOWS, st.sampled_from(["[TUMBLING 4]", "[HOPPING 6 EVERY 2]"])),
    over=st.sampled_from([
        "s", "(SELECT ISTREAM v FROM s)", "(SELECT ISTREAM count(*) AS v FROM s [RANGE 3])",
        "(SELECT ISTREAM sum(v) AS v FROM s [ROWS 2])",
    ]),
    retain=st.sampled_from(["", " WITH (retain = 3)", " WITH (retain = 7)", " WITH (retain = 'all')",
                            " WITH (retain = 7, history = 'disk')"]),
    start=st.sampled_from([None, None, "now"]),
    before=ROWS, after=ROWS,
)  # fmt: skip
def test_windows_over_rows_that_are_gone_are_refused_or_marked(
    window: str, over: str, retain: str, start: object, before: list[int], after: list[int]
) -> None:
    text = f"SELECT window_start, count(*) AS n FROM {over}{' AS d' if over != 's' else ''} {window}"
    now, rows = 0, list[Row]()
    for step in (*before, *after):
        now += step
        rows.append((now, now))
    found: dict[str, Found] = {}
    for engine in ("reference", "local"):
        with penstock.connect(engine=engine) as db:
            db.execute(f"CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t{retain}")
            try:
                wanted = db.query(text)
            except penstock.PenstockError:
                return  # such windows there are not
            for row in rows[: len(before)]:
                db.push("s", [row])
            try:
                query = db.query(text, start=start)  # type: ignore[arg-type]
            except penstock.BindError as refused:
                found[engine] = [(str(refused),)]
                continue
            for row in rows[len(before) :]:
                db.push("s", [row])
            db.close_stream("s")
            table, true = query.fetch(), rows_of(wanted.fetch())
            found[engine] = [*rows_of(table), query.incomplete]
            first = min((int(str(r[0])) for r in rows_of(table)), default=10**9)

            def kept(rows: Found, marks: tuple[Incomplete, ...] = query.incomplete, first: int = first) -> Found:
                named = [r for r in rows if not any(m.covers(int(str(r[0]))) for m in marks)]
                # TUMBLING and HOPPING have no windows before the first row that a query sees.
                return sorted(r for r in named if "BEGIN" in window or int(str(r[0])) >= first)

            assert kept(rows_of(table)) == kept(true)
    assert found["reference"] == found["local"]
