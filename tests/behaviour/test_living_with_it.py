"""What users run into after the first day: callbacks, clocks, odd inputs, plans as text."""

from __future__ import annotations

import logging
import queue
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock

DECLARE = "CREATE STREAM s (t BIGINT, g STRING, a BIGINT) TIMESTAMP BY t"


def test_a_callback_that_raises_takes_nothing_from_others(engine: str, caplog: pytest.LogCaptureFixture) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(DECLARE)
        first, second = (db.query("SELECT a FROM s [TUMBLING 5]") for _ in range(2))
        heard: list[pa.Table] = []
        first.subscribe(lambda table: 1 // 0)
        first.subscribe(heard.append)
        db.push("s", [(1, "a", 1)])
        with caplog.at_level(logging.ERROR, "penstock"):
            db.close_stream("s")
        assert "ZeroDivisionError" in caplog.text
        assert [t.num_rows for t in heard] == [1]
        assert (second.status, second.fetch().num_rows) == ("ended", 1)


def test_a_plan_is_accepted_as_the_text_that_explain_gives(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(DECLARE)
        text = db.explain("SELECT g, sum(a) AS n FROM s [ROWS 2] GROUP BY g", format="json")
        by_text = db.query(plan=text)
        row = db.execute("EXPLAIN (FORMAT JSON) SELECT g, sum(a) AS n FROM s [ROWS 2] GROUP BY g").table
        assert row is not None
        by_statement = db.query(plan=row.column("plan")[0].as_py())
        db.push("s", [(1, "a", 1), (2, "a", 2)])
        assert by_text.fetch().to_pylist() == by_statement.fetch().to_pylist() != []
        with pytest.raises(penstock.PlanError, match="the plan is not JSON"):
            db.query(plan="SELECT 1")


def test_time_passes_for_streams_stamped_on_arrival(engine: str) -> None:
    now = [0]
    with penstock.connect(engine=engine, clock=lambda: now[0]) as db:
        db.execute("CREATE STREAM r (a BIGINT)")
        q = db.query("SELECT count(*) AS n FROM r [TUMBLING 1 SECOND]")
        heard: list[int] = []
        q.subscribe(lambda table: heard.extend(table.column("n").to_pylist()))
        db.push("r", [(1,)])
        now[0] = 1_500_000
        db.push("r", [])
        assert heard == [1]
        now[0] = 3_000_000
        db.heartbeat()
        assert heard == [1, 0, 0]


def test_an_iteration_hears_of_time_passing(engine: str) -> None:
    now, pushes, looked = [0], threading.get_ident(), threading.Event()

    def clock() -> int:
        if threading.get_ident() != pushes:
            looked.set()
        return now[0]

    with penstock.connect(engine=engine, clock=clock) as db:
        db.execute("CREATE STREAM r (a BIGINT)")
        q = db.query("SELECT count(*) AS n FROM r [TUMBLING 1 SECOND]")
        heard: queue.SimpleQueue[list[int]] = queue.SimpleQueue()

        def read() -> None:
            for batch in q:
                heard.put(batch.column("n").to_pylist())

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        db.push("r", [(1,)])
        for at, counts in ((1_500_000, [1]), (2_500_000, [0])):
            looked.clear()
            assert looked.wait(30)  # the iteration is waiting: what it is given from here on it hears by itself
            assert heard.empty()
            now[0] = at
            assert heard.get(timeout=30) == counts
    reader.join(30)
    assert not reader.is_alive()


def test_a_pandas_column_of_nothing_fits_any_type(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(DECLARE)
        q = db.query("SELECT g, a FROM s")
        db.push("s", pd.DataFrame({"t": [1], "g": [np.nan], "a": [1]}))
        db.push("s", pd.DataFrame({"t": [], "g": [], "a": []}))
        assert q.fetch().select(["g", "a"]).to_pylist() == [{"g": None, "a": 1}]


def test_finer_than_microseconds_is_cut_off_in_every_form(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE STREAM w (at TIMESTAMP, a BIGINT) TIMESTAMP BY at")
        q = db.query("SELECT a FROM w")
        fine = pd.Timestamp("2024-05-01 10:00:00.000000123")
        db.push("w", [(fine, 1)])
        db.push("w", pd.DataFrame({"at": [fine], "a": [2]}))
        db.push("w", pa.table({"at": pa.array([fine.value], pa.timestamp("ns")), "a": [3]}))
        assert {str(ts) for ts in q.fetch().column("ts").to_pylist()} == {"2024-05-01 10:00:00"}


def test_instants_out_of_range_are_refused(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(DECLARE)
        with pytest.raises(penstock.InputError, match="out of range"):
            db.heartbeat("s", 2**63)
        with pytest.raises(penstock.BindError, match="longer than time itself"):
            db.query("SELECT sum(a) AS v FROM s [RANGE 9223372036854775807]")
        db.push("s", [(1, "a", 1)])


def test_a_long_gap_of_empty_windows(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(DECLARE)
        tumbling = db.query("SELECT window_start, count(*) AS n FROM s [TUMBLING 1]")
        hopping = db.query("SELECT count(*) AS n, sum(a) AS total FROM s [HOPPING 3 EVERY 1]")
        db.push("s", [(0, "a", 1), (500, "a", 2)])
        db.close_stream("s")
        counts = tumbling.fetch()
        assert counts.column("window_start").to_pylist() == list(range(501))
        assert counts.column("n").to_pylist() == [1] + [0] * 499 + [1]
        assert hopping.fetch().column("total").to_pylist() == [1] * 3 + [None] * 497 + [2] * 3


@pytest.mark.parametrize(
    ("name", "function", "args", "message"),
    [
        ("sum", len, ["STRING"], "there is a built-in function `sum`"),
        ("a b", len, ["STRING"], "`a b` cannot be the name of a function"),
        ("f", 5, ["STRING"], "5 cannot be called"),
        ("f", len, "STRING", "args is a list of types, not 'STRING'"),
    ],
)
def test_functions_that_cannot_be(name: str, function: object, args: object, message: str) -> None:
    with penstock.connect() as db, pytest.raises(penstock.CatalogError, match=message):
        db.create_function(name, function, args=args, returns="BIGINT")  # type: ignore[arg-type]


def test_looking_around_in_an_empty_database() -> None:
    with penstock.connect() as db:
        for what in ("STREAMS", "RELATIONS", "VIEWS", "QUERIES"):
            table = db.execute(f"SHOW {what}").table
            assert table is not None
            assert table.num_rows == 0
        with pytest.raises(penstock.CatalogError, match="no query `nosuch`"):
            db.explain("nosuch")
    with pytest.raises(penstock.StateError, match="the database is closed"):
        db.late("s")


def test_answers_wait_in_order_however_many_there_are(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(DECLARE)
        fetched, read = db.query("SELECT a FROM s"), db.query("SELECT a FROM s")
        for i in range(150):
            db.push("s", [(i, "a", i)])
        db.push("s", [(200, "a", i) for i in range(150, 300)])
        db.close_stream("s")
        assert fetched.fetch().column("a").to_pylist() == list(range(300))
        assert [a for batch in read for a in batch.column("a").to_pylist()] == list(range(300))


def test_looking_how_far_streams_are() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(f"""
            {DECLARE};
            CREATE STREAM r (at TIMESTAMP) TIMESTAMP BY at SLACK 1 SECOND;
            CREATE STREAM d AS SELECT ISTREAM a FROM s;
            CREATE STREAM silent (t BIGINT) TIMESTAMP BY t""")
        db.push("s", [(5, "a", 1), (4, "a", 1)])
        db.push("r", [("2024-05-01 10:00:01.5",)])
        table = db.execute("SHOW STREAMS").table
        assert table is not None
        assert table.select(["stream", "progress", "late"]).to_pylist() == [
            {"stream": "s", "progress": "5", "late": "1"},
            {"stream": "r", "progress": "2024-05-01 10:00:00.500000", "late": "0"},
            {"stream": "d", "progress": "", "late": ""},
            {"stream": "silent", "progress": "", "late": "0"},
        ]
        db.close_stream("s")
        table = db.execute("SHOW STREAMS").table
        assert table is not None
        assert table["progress"][0].as_py() == "closed"


def test_a_query_that_is_there_and_one_that_leaves_its_stream_behind() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(DECLARE)
        create = "CREATE QUERY IF NOT EXISTS q AS SELECT ISTREAM a FROM s INTO d"
        first, again = db.execute(create), db.execute(create)
        assert again.message == "query q is there already"
        assert again.query is first.query
        assert db.execute("STOP QUERY q").message == "query q stopped; DROP STREAM d removes its stream"
        db.execute("DROP STREAM d")
        db.execute("CREATE QUERY q AS SELECT a FROM s")
        assert db.execute("STOP QUERY q").message == "query q stopped"


def test_null_fills_columns_of_a_union() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(f"{DECLARE}; CREATE STREAM r (t BIGINT, x DOUBLE) TIMESTAMP BY t")
        text = """SELECT a, NULL AS x, NULL AS d FROM s [NOW] UNION ALL (SELECT NULL, x, NULL FROM r [NOW])
                  UNION ALL SELECT NULL, NULL, DATE '2024-05-01' FROM r [NOW] WHERE x > 5"""
        q = db.query(f"SELECT ISTREAM a, x, d FROM ({text}) AS u")
        assert [str(f.type) for f in q.plan.schema] == ["BIGINT", "DOUBLE", "DATE"]
        db.push("s", [(1, "g", 7)])
        db.push("r", [(2, 1.5)])
        db.close_stream("s")
        db.close_stream("r")
        assert [tuple(row.values())[2:] for row in q.fetch().to_pylist()] == [(7, None, None), (None, 1.5, None)]
        for other in ("NULL", "collect(a)"):
            with pytest.raises(penstock.BindError, match="a column of nothing but NULL needs a type"):
                db.query(f"SELECT NULL FROM s UNION SELECT {other} FROM s")
        with pytest.raises(penstock.BindError, match="line 1, column 33: no column `nope`"):
            db.query("SELECT NULL FROM s UNION SELECT nope FROM s")
