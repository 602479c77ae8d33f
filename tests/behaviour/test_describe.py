"""DESCRIBE gives the statement that declares a thing: executed in a new database, it declares the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.catalog import Catalog
from penstock.cql.declarations import definition
from penstock.cql.names import written_name, written_names
from penstock.cql.plan_objects import by_name
from penstock.cql.text import parse
from penstock.database.database import core_of
from tests.budget import examples

NAMES = ("s", "r", "Rooms", "user id", "select", "größe", "it's", 'a"b', "plan", "function")
COLUMNS = ("k", "K", "deviceId", "at", "order", "x y", "naïve", "n1", "window", "it's")
TYPES = ("INT", "BIGINT", "DOUBLE", "REAL", "STRING", "BOOLEAN", "DECIMAL(10, 2)", "DATE", "TIMESTAMP", "INTERVAL")
ZONES = ("UTC", "Europe/Vienna", "Asia/Tokyo")


def described(db: penstock.Database, name: str, kind: str = "") -> str:
    note = db.execute(f"DESCRIBE {kind} {written(name)}").note
    assert note is not None
    return note


def written(name: str) -> str:
    """A name in quotes where it has to be."""
    return written_name(name) if name == name.lower() else f'"{name}"'


@st.composite
def streams(draw: st.DrawFn, name: str) -> str:
    """A declared stream with every clause that there is."""
    names = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4, unique=True))
    types = [draw(st.sampled_from(TYPES)) for _ in names]
    columns = written_names(names)
    body = ", ".join(f"{c} {t}" for c, t in zip(columns, types, strict=True))
    text = f"CREATE STREAM {draw(st.sampled_from(['', 'IF NOT EXISTS ']))}{written(name)} ({body}"
    clocks = draw(st.sampled_from(["", "clock BIGINT", "clock TIMESTAMP"]))
    text += f", {clocks})" if clocks else ")"
    ticks = clocks.endswith("BIGINT")
    if clocks:
        text += " TIMESTAMP BY CLOCK"
        slack = "7" if ticks else "INTERVAL '10' MINUTE"
        text += draw(st.sampled_from(["", f" SLACK {slack}", " SLACK 2 SECONDS", " SLACK '1 hour 30 minutes'"]))
    numbers = [c for c, t in zip(columns, types, strict=True) if t in ("INT", "BIGINT", "DOUBLE")]
    prioritised = bool(numbers) and draw(st.booleans())
    if prioritised:
        text += draw(st.sampled_from([f" PRIORITY BY {numbers[0]} * 2", f" PRIORITY BY {numbers[0]} > 1.5"]))
    source = draw(st.booleans())
    if source:
        text += " FROM spark (format = 'parquet', \"maxFilesPerTrigger\" = 3, path = 'it''s', trigger = '100 ms')"
    choices = {
        "retain": ["'all'", "'90 minutes'", "1000" if ticks else "'1 hour'"],
        "buffer": ["'64 MB'", "'1000 rows'"],
        "on_error": ["'apart'", "'refuse'", *([] if source else ["'stop'"])],
        "unknown": ["'ignore'", "'REFUSE'"],
    }
    if clocks.endswith("TIMESTAMP"):
        choices["idle"] = ["'5 seconds'"]
    if not prioritised:
        choices["overflow"] = ["'drop  oldest'"]
    if "TIMESTAMP" in types or clocks.endswith("TIMESTAMP"):
        if draw(st.booleans()):
            choices["time"] = ["'milliseconds'", "'%d.%m.%Y %H:%M'"]
        else:
            choices["zone"] = ["'Europe/Vienna'", "'UTC'"]
    given = draw(st.lists(st.sampled_from(sorted(choices)), unique=True))
    options = [f"{key} = {draw(st.sampled_from(choices[key]))}" for key in given]
    return text + (f" WITH ({', '.join(options)})" if options else "")


@st.composite
def relations(draw: st.DrawFn, name: str) -> str:
    names = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4, unique=True))
    columns = written_names(names)
    body = ", ".join(f"{c} {draw(st.sampled_from(TYPES))}" for c in columns)
    key = draw(st.lists(st.sampled_from(columns), unique=True))
    exists = draw(st.sampled_from(["", "IF NOT EXISTS "]))
    return f"CREATE RELATION {exists}{written(name)} ({body})" + (f" KEY ({', '.join(key)})" if key else "")


@st.composite
def queries(draw: st.DrawFn, sources: list[str]) -> str:
    """A query whose answers are a stream."""
    source = draw(st.sampled_from(sources))
    word = draw(st.sampled_from(["select istream", "SELECT ISTREAM", "SELECT RSTREAM"]))
    end = draw(st.sampled_from(["", " MASTER s", f" WHERE EXISTS (SELECT 1 FROM {sources[0]} [NOW])"]))
    text = f"{word} * FROM {source} [ROWS 3]{end if source == 's' or 'MASTER' not in end else ''}"
    if draw(st.booleans()):
        return text
    inner = f"SELECT ISTREAM 'it''s' AS said FROM {source} [RANGE 10] AS a JOIN {source} [NOW] AS b ON TRUE"
    return f"SELECT ISTREAM x.said FROM ({inner}) [ROWS 2] AS x"


@st.composite
def options(draw: st.DrawFn) -> str:
    choices = {
        "priority": ["0", "5", "9"],
        "join_priority": ["'min'", "'sum'", "'max'"],
        "results": ["'512 MB'", "'1234567 B'", "'1000 rows'", "'1 GiB'"],
        "latency": ["'100 ms'", "'1 hour 30 minutes'", "2 SECONDS", "'7 us'"],
        "lag": ["'1000000 rows'", "64000000"],
        "on_lag": ["'stop'", "'suspend'"],
        "strict": ["true", "FALSE"],
        "start": ["'now'"],
    }
    given = draw(st.lists(st.sampled_from(sorted(choices)), unique=True))
    found = [f"{key} = {draw(st.sampled_from(choices[key]))}" for key in given]
    return f" WITH ({', '.join(found)})" if found else ""


@st.composite
def scripts(draw: st.DrawFn) -> list[str]:
    """Statements that declare things, each over what was declared before it."""
    names = list(draw(st.permutations([n for n in NAMES if n != "s"])))
    found = ["CREATE STREAM s (t BIGINT, k INT) TIMESTAMP BY t"]
    sources = ["s"]
    for kind in draw(st.lists(st.sampled_from(["stream", "relation", "derived", "view", "query", "into"]), max_size=6)):
        name = names.pop()
        match kind:
            case "stream":
                found.append(draw(streams(name)))
            case "relation":
                found.append(draw(relations(name)))
            case "derived":
                found.append(f"CREATE STREAM {written(name)} AS {draw(queries(sources))}")
                sources.append(written(name))
            case "view":
                replaced = draw(st.sampled_from(["", "OR REPLACE "]))
                found.append(f"CREATE {replaced}VIEW {written(name)} AS {draw(queries(sources))}")
            case "query":
                exists = draw(st.sampled_from(["", "IF NOT EXISTS "]))
                found.append(f"CREATE QUERY {exists}{written(name)} AS {draw(queries(sources))}{draw(options())}")
            case _:
                into = f"INTO {written(name + ' 2')}"
                found.append(f"CREATE QUERY {written(name)} AS {draw(queries(sources))} {into}{draw(options())}")
                sources.append(written(name + " 2"))
    return found


def declare(db: penstock.Database, statement: str) -> None:
    """Execute a statement, also of a stream that the engine has no source for."""
    tree = parse(statement)[0].tree
    if tree.args.get("source") is None:
        db.execute(statement)
    else:
        found = definition(tree, db.catalog)
        assert found is not None
        core_of(db).put(found)


def entries(catalog: Catalog) -> Mapping[str, Any]:
    found: dict[str, Any] = {**catalog.streams, **catalog.relations, **catalog.views}
    return {name: replace(entry, text="") for name, entry in found.items()}


def registered(db: penstock.Database) -> Mapping[str, Any]:
    """Without positions: a stream inside a query has that of the query, which may come later than it did."""
    found = core_of(db).queries
    return {n: (by_name(found[n].plan_json), q.options, q.reads, q.schema) for n, q in db.queries.items()}


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(scripts(), st.sampled_from(ZONES))
def test_a_description_declares_the_same(statements: list[str], zone: str) -> None:
    with penstock.connect(engine="local", zone=zone) as db, penstock.connect(engine="local", zone=zone) as other:
        for statement in statements:
            declare(db, statement)
        told = {name: described(db, name) for name in db.catalog.names()}
        queries = {name: described(db, name, "QUERY") for name in db.queries}
        order = {name: entry.position for name, entry in entries(db.catalog).items() if hasattr(entry, "position")}
        # Views read streams, and nothing reads them here; queries read streams.
        for text in dict.fromkeys([*(told[n] for n in sorted(order, key=order.__getitem__)), *told.values()]):
            declare(other, text)
        for text in queries.values():
            if text not in told.values():
                declare(other, text)
        assert entries(other.catalog) == entries(db.catalog), told
        assert registered(other) == registered(db), queries
        assert {name: described(other, name) for name in other.catalog.names()} == told
        assert {name: described(other, name, "QUERY") for name in other.queries} == queries


def test_every_option_is_in_a_description() -> None:
    text = (
        "CREATE QUERY q AS SELECT ISTREAM k FROM s INTO ks WITH (join_priority = 'min', ordered = TRUE, priority = 7, "
        "latency = '100 milliseconds', strict = TRUE, start = 'now', lag = '10 rows', on_lag = 'stop', "
        "results = '1 MB')"
    )
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT, k INT) TIMESTAMP BY t")
        db.execute(text)
        assert described(db, "q") == described(db, "ks") == text
        db.execute("DROP STREAM ks")
        assert described(db, "q") == text.replace(" INTO ks", "")


def test_queries_from_python(engine: str) -> None:
    with penstock.connect(engine=engine) as db, penstock.connect(engine=engine) as other:
        declared = "CREATE STREAM s (t BIGINT, k STRING) TIMESTAMP BY t WITH (retain = 'all')"
        db.execute(declared)
        db.execute("CREATE VIEW unused AS SELECT k FROM s")
        db.query("select k,\n t from s", name="Some query", start="now")
        db.query(plan=db.explain("SELECT k || 'it''s \\' AS x FROM s ORDER BY t DESC LIMIT 2", format="json"), name="p")
        db.execute("SELECT count(*) FROM s")
        assert described(db, "Some query") == "CREATE QUERY \"Some query\" AS SELECT k, t FROM s WITH (start = 'now')"
        assert described(db, "q1") == "CREATE QUERY q1 AS SELECT count(*) FROM s"
        assert described(db, "p").startswith("CREATE QUERY p AS PLAN '{")
        other.execute("CREATE STREAM first (a INT)")  # positions are looked up
        other.execute(declared)
        for name in db.queries:
            other.execute(described(db, name))
        for each in (db, other):
            each.push("s", [(1, "a"), (2, "b"), (3, "c")])
        found = [{n: q.current().to_pylist() for n, q in each.queries.items()} for each in (db, other)]
        assert found[0] == found[1]
        assert found[0]["p"] == [{"x": "cit's \\"}, {"x": "bit's \\"}]


def test_a_plan_object_is_described_without_positions() -> None:
    with penstock.connect(engine="local") as db, penstock.connect(engine="local") as other:
        db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t; CREATE STREAM u (t BIGINT, v STRING) TIMESTAMP BY t")
        plan = db.explain("SELECT v || 'it''s' AS v FROM u", format="json").replace("'", "''")
        db.execute(f"CREATE QUERY q AS PLAN '{plan}'")
        for name in ("u", "q"):
            other.execute(described(db, name))
        other.push("u", [(1, "a")])
        assert other.queries["q"].fetch()["v"].to_pylist() == ["ait's"]


def test_the_priority_of_pairs_that_python_gave(engine: str) -> None:
    """An expression, in CQL; it changes the order in which answers come, so it is part of the plan."""
    with penstock.connect(engine=engine) as db, penstock.connect(engine=engine) as other:
        declared = "CREATE STREAM s (t BIGINT, p BIGINT) TIMESTAMP BY t PRIORITY BY p"
        text = "SELECT ISTREAM a.p AS x, b.p AS y FROM s [RANGE 5] a JOIN s [RANGE 5] b ON a.p < b.p"
        for each in (db, other):
            each.execute(declared)
        query = db.query(text, name="pairs", join_priority="10 - left_priority", ordered=True)
        other.execute(described(db, "pairs"))
        assert other.queries["pairs"].plan == query.plan
        assert query.plan != db.query(text).plan
        for each in (db, other):
            each.push("s", [(1, 1), (1, 2), (1, 3)])
        assert other.queries["pairs"].fetch().to_pylist() == query.fetch().to_pylist()
        with pytest.raises(penstock.PenstockError, match="`join_priority` is one of 'max', 'min', 'sum'"):
            db.query(text, join_priority="most")


def test_a_stream_says_the_zone_that_it_was_declared_in(tmp_path: Any) -> None:
    with penstock.connect(tmp_path, engine="local", zone="Europe/Vienna") as db:
        db.execute("CREATE STREAM s (at TIMESTAMP) TIMESTAMP BY at")
        assert described(db, "s") == "CREATE STREAM s (at TIMESTAMP) TIMESTAMP BY at"
    with penstock.connect(tmp_path, engine="local", zone="Asia/Tokyo") as db:
        with_zone = "CREATE STREAM s (at TIMESTAMP) TIMESTAMP BY at WITH (zone = 'Europe/Vienna')"
        assert described(db, "s") == with_zone


def test_functions_and_kinds() -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM avg (t BIGINT, q INT) TIMESTAMP BY t; CREATE QUERY avg AS SELECT q FROM avg")
        db.create_function("Double", _double, args=["BIGINT", "STRING"], returns="BIGINT")
        own = db.execute("DESCRIBE double")
        assert own.note == 'db.create_function("double", _double, args=["BIGINT", "STRING"], returns="BIGINT")'
        assert own.table is not None
        assert own.table["signature"].to_pylist() == ["double(BIGINT, STRING) → BIGINT"]
        assert described(db, "avg").startswith("CREATE STREAM")
        assert described(db, "avg", "QUERY").startswith("CREATE QUERY")
        built_in = db.execute("DESCRIBE FUNCTION avg")
        assert built_in.note is None
        assert "avg(x" in str(built_in)
        assert str(db.execute("DESCRIBE avg")).endswith("\nCREATE STREAM avg (t BIGINT, q INT) TIMESTAMP BY t")
        assert db.execute("DESCRIBE QUERY avg").message == "query avg: running, 0 answers"
        assert db.execute("SHOW QUERIES").message == "1 query"


def _double(value: int, unit: str) -> int:
    return 2 * value


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("DESCRIBE t", "no stream, relation, view, query or function `t`; there is `s`"),
        ("DESCRIBE QUERY s", "`s` is a stream, not a query; DESCRIBE STREAM s"),
        ("DESCRIBE FUNCTION avgg", "no function `avgg`; did you mean `avg`"),
        ("DESCRIBE VIEW s", "`s` is a stream, not a view; DESCRIBE STREAM s"),
        ("CREATE QUERY q AS PLAN 'x'", "the plan is not JSON: "),
        ("CREATE QUERY q AS PLAN SELECT", "expected a text with a plan object in JSON"),
        ("CREATE VIEW q AS PLAN '{}'", "expected "),
    ],
)
def test_what_is_not_there(text: str, error: str) -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT, k INT) TIMESTAMP BY t")
        with pytest.raises(penstock.PenstockError) as caught:
            db.execute(text)
        assert error in str(caught.value)
