"""Time zones as a user meets them, on every engine: functions, texts, answers, streams, directories."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest

import penstock
from penstock.cli.main import main
from penstock.database.database import core_of
from penstock.database.play import play
from penstock.io.writers import open_writer
from penstock.model.errors import BindError, CqlSyntaxError, InputError, PlanError
from penstock.testing import assert_answers
from tests.spark.direct import directly

VIENNA = "Europe/Vienna"
STREAM = "CREATE STREAM s (at TIMESTAMP, n BIGINT) TIMESTAMP BY at"
NIGHT = "2024-03-31 00:30:00Z", "2024-03-31 01:30:00Z", "2024-10-27 00:30:00Z", "2024-10-27 01:30:00Z"
"""Before and after clocks in Vienna are put forward, and put back."""


def opened(engine: str, zone: str | None = VIENNA, **more: Any) -> penstock.Database:
    db = penstock.connect(engine=engine, zone=zone, **more)
    db.execute(STREAM)
    return db


def asked(db: penstock.Database, *columns: str, rows: tuple[Any, ...] = NIGHT) -> list[tuple[Any, ...]]:
    """The columns of a query over some instants."""
    names = [f"c{i}" for i in range(len(columns))]
    query = db.query(f"SELECT ISTREAM {', '.join(map(' AS '.join, zip(columns, names, strict=True)))} FROM s [NOW]")
    db.push("s", [(row, i) for i, row in enumerate(rows)])
    return [tuple(row[name] for name in names) for row in query.fetch().to_pylist()]


def in_utc(values: list[Any]) -> list[Any]:
    return [v.astimezone(UTC).replace(tzinfo=None) if isinstance(v, datetime) else v for v in values]


# -- functions, casts and constants -----------------------------------------------------------------------


def test_functions(engine: str) -> None:
    with opened(engine) as db:
        assert asked(db, "hour(at)", "CAST(at AS STRING)", "EXTRACT(day FROM at)", "strftime(at, '%H:%M')") == [
            (1, "2024-03-31 01:30:00", 31, "01:30"), (3, "2024-03-31 03:30:00", 31, "03:30"),
            (2, "2024-10-27 02:30:00", 27, "02:30"), (2, "2024-10-27 02:30:00", 27, "02:30"),
        ]  # fmt: skip


def test_utc_is_the_default(engine: str) -> None:
    with opened(engine, None) as db:
        assert db.zone == "UTC"
        assert asked(db, "hour(at)", "at", "current_timezone()")[:2] == [
            (0, datetime(2024, 3, 31, 0, 30), "UTC"), (1, datetime(2024, 3, 31, 1, 30), "UTC"),
        ]  # fmt: skip


def test_beginnings_and_months(engine: str) -> None:
    with opened(engine) as db:
        found = asked(db, "date_trunc('day', at)", "date_trunc('hour', at)", "at + INTERVAL '1' MONTH",
                      "at + INTERVAL '1' DAY", "make_timestamp(2024, 3, 31, 2, 30, 0)")  # fmt: skip
    assert [in_utc(list(row)) for row in found] == [
        [datetime(2024, 3, 30, 23), datetime(2024, 3, 31, 0), datetime(2024, 4, 29, 23, 30),
         datetime(2024, 4, 1, 0, 30), datetime(2024, 3, 31, 1, 30)],
        [datetime(2024, 3, 30, 23), datetime(2024, 3, 31, 1), datetime(2024, 4, 30, 1, 30),
         datetime(2024, 4, 1, 1, 30), datetime(2024, 3, 31, 1, 30)],
        [datetime(2024, 10, 26, 22), datetime(2024, 10, 27, 0), datetime(2024, 11, 27, 1, 30),
         datetime(2024, 10, 28, 0, 30), datetime(2024, 3, 31, 1, 30)],
        [datetime(2024, 10, 26, 22), datetime(2024, 10, 27, 1), datetime(2024, 11, 27, 1, 30),
         datetime(2024, 10, 28, 1, 30), datetime(2024, 3, 31, 1, 30)],
    ]  # fmt: skip


def test_days(engine: str) -> None:
    with opened(engine) as db:
        found = asked(
            db, "CAST(CAST(at AS DATE) AS STRING)", "CAST(CAST(at AS DATE) AS TIMESTAMP) = date_trunc('day', at)",
            "at < DATE '2024-04-01'", "CAST(last_day(at) AS STRING)", "dayofweek(DATE '2011-12-30')",
            "CAST(add_months(DATE '2024-01-31', 1) AS STRING)",
            "date_diff('day', DATE '2024-03-30', DATE '2024-04-01')",
            rows=("2024-03-30 22:59:59Z", "2024-03-30 23:00:00Z", "2024-03-31 22:00:00Z"),
        )  # fmt: skip
    assert found == [
        ("2024-03-30", True, True, "2024-03-31", 6, "2024-02-29", 2),
        ("2024-03-31", True, True, "2024-03-31", 6, "2024-02-29", 2),
        ("2024-04-01", True, False, "2024-04-30", 6, "2024-02-29", 2),
    ]


def test_a_day_that_the_zone_never_had(engine: str) -> None:
    with opened(engine, "Pacific/Apia") as db:
        assert asked(db, "dayofweek(DATE '2011-12-30')", "CAST(DATE '2011-12-30' + 1 AS STRING)", rows=NIGHT[:1]) == [
            (6, "2011-12-31")
        ]


@pytest.mark.parametrize(
    "text",
    ["TIMESTAMP '2024-03-31 03:30:00'", "'2024-03-31 03:30:00'", "TIMESTAMP '2024-03-31 01:30:00Z'",
     "TIMESTAMP '2024-03-31 01:30:00+00:00'", "TIMESTAMP WITH TIME ZONE '2024-03-30 21:30:00-04'",
     "TIMESTAMPTZ '2024-03-31 10:30:00 Asia/Tokyo'", "TIMESTAMP '2024-03-31 02:30:00'", "to_timestamp(t)",
     "CAST('2024-03-31 10:30 Asia/Tokyo' AS TIMESTAMP WITH TIME ZONE)", "'2024-03-31 03:30:00'::TIMESTAMP_LTZ",
     "to_timestamp('31.03.2024 03:30', 'dd.MM.yyyy HH:mm')"],
)  # fmt: skip
def test_constants(engine: str, text: str) -> None:
    """02:30 was in the gap, which is an hour long."""
    with opened(engine) as db:
        text = text.replace("(t)", "('2024-03-31 03:30:00')")
        assert asked(db, f"at = {text}", f"at IN ({text}, DATE '2024-01-01')", f"CASE at WHEN {text} THEN 1 END") == [
            (False, False, None), (True, True, 1), (False, False, None), (False, False, None),
        ]  # fmt: skip


def test_the_earlier_of_two(engine: str) -> None:
    with opened(engine) as db:
        found = asked(db, "at = TIMESTAMP '2024-10-27 02:30:00'", "at = TIMESTAMP '2024-10-27 02:30:00+01:00'")
        assert found == [(False, False), (False, False), (True, False), (False, True)]


def test_far_dates(engine: str) -> None:
    rows = "1850-01-01 00:00:00Z", "9999-12-31 22:59:59Z"
    with opened(engine) as db:
        later = "hour(at + INTERVAL '1000150' DAY)"
        assert asked(db, "CAST(at AS STRING)", "year(at)", "hour(at)", later, rows=rows) == [
            ("1850-01-01 01:05:21", 1850, 1, 2), ("9999-12-31 23:59:59", 9999, 23, None),
        ]  # fmt: skip


def test_at_time_zone(engine: str) -> None:
    columns = ("hour(at AT TIME ZONE 'America/New_York')", "CAST(at AT TIME ZONE 'Asia/Kolkata' AS STRING)",
               "CAST(at AT TIME ZONE 'America/New_York' AT TIME ZONE 'UTC' AS STRING)")  # fmt: skip
    for zone in (None, VIENNA, "+03:00"):
        with opened(engine, zone) as db:
            found = asked(db, *columns[:2], rows=NIGHT[:3:2])
            assert found == [(20, "2024-03-31 06:00:00"), (20, "2024-10-27 06:00:00")]
    with opened(engine, None) as db:
        assert asked(db, "to_utc_timestamp(from_utc_timestamp(at, 'Europe/Vienna'), 'Europe/Vienna') = at",
                     columns[2]) == [
            (True, "2024-03-30 20:30:00"), (True, "2024-03-30 21:30:00"), (True, "2024-10-26 20:30:00"),
            (False, "2024-10-26 21:30:00"),
        ]  # fmt: skip


def test_a_zone_in_a_column(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE STREAM s (at TIMESTAMP, z STRING) TIMESTAMP BY at")
        query = db.query("SELECT ISTREAM hour(at AT TIME ZONE z) AS h FROM s [NOW]")
        db.push("s", [("2024-07-01 12:00", z) for z in (VIENNA, "Asia/Tokyo", None, "Nowhere", "utc", "-2")])
        assert query.fetch()["h"].to_pylist() == [14, 21, None, None, 12, 10]
        assert query.failures == 1
        assert "there is no time zone Nowhere" in str(query.last_failure)


def test_databases_of_several_zones_at_once() -> None:
    zones = {VIENNA: 14, "Asia/Tokyo": 21, "America/New_York": 8, "UTC": 12}
    found: dict[str, set[int]] = {}

    def work(zone: str) -> None:
        with opened("local", zone) as db:
            query = db.query("SELECT ISTREAM hour(at) AS h FROM s [NOW]")
            for _ in range(50):
                db.push("s", [("2024-07-01 12:00:00Z", 1)])
            found[zone] = set(query.fetch()["h"].to_pylist())

    threads = [threading.Thread(target=work, args=(zone,)) for zone in zones]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {zone: {hour} for zone, hour in zones.items()}


# -- what comes in ----------------------------------------------------------------------------------------


def instants(db: penstock.Database, name: str = "s") -> list[datetime]:
    query = next(iter(db.queries.values()))
    return in_utc(query.fetch()["at"].to_pylist())


EXPECTED = [datetime(2024, 3, 31, 0, 59), datetime(2024, 3, 31, 1, 30), datetime(2024, 10, 27, 0, 30)]
TEXTS = ["2024-03-31 01:59", "2024-03-31 02:30:00", "2024-10-27 02:30:00"]


@pytest.mark.parametrize("zone", [None, "Asia/Tokyo", VIENNA])
@pytest.mark.parametrize("kind", ["rows", "table", "pandas", "csv", "json", "parquet", "form"])
def test_texts_without_a_zone(engine: str, zone: str | None, kind: str, tmp_path: Path) -> None:
    """The zone of the stream decides; without one that of the database does."""
    own = "" if zone == VIENNA else f"zone = '{VIENNA}'"
    texts = TEXTS
    if kind == "form":
        own = f"{own}{', ' * bool(own)}time = '%d.%m.%Y %H:%M'"
        texts = ["31.03.2024 01:59", "31.03.2024 02:30", "27.10.2024 02:30"]
    with penstock.connect(engine=engine, zone=zone) as db:
        db.execute(STREAM + (f" WITH ({own})" if own else ""))
        query = db.query("SELECT ISTREAM at FROM s [NOW]")
        table = pa.table({"at": texts, "n": [1, 2, 3]})
        match kind:
            case "rows" | "form":
                db.push("s", list(zip(texts, (1, 2, 3), strict=True)))
            case "table":
                db.push("s", table)
            case "pandas":
                db.push("s", pd.DataFrame({"at": texts, "n": [1, 2, 3]}))
            case "csv":
                pa.csv.write_csv(table, tmp_path / "s.csv")
                play(core_of(db), {"s": tmp_path / "s.csv"})
            case "json":
                lines = [json.dumps(row) for row in table.to_pylist()]
                (tmp_path / "s.jsonl").write_text("\n".join(lines))
                play(core_of(db), {"s": tmp_path / "s.jsonl"})
            case "parquet":
                pa.parquet.write_table(table, tmp_path / "s.parquet")
                play(core_of(db), {"s": tmp_path / "s.parquet"})
        assert in_utc(query.fetch()["at"].to_pylist()) == EXPECTED


def test_what_has_a_zone_keeps_it(engine: str, tmp_path: Path) -> None:
    """Texts that name a zone, values with one, and instants as Python, Arrow and numbers have them."""
    noon = datetime(2024, 7, 1, 12)
    values = ["2024-07-01 12:00Z", "2024-07-01 14:00+02:00", "2024-07-01 21:00:00 Asia/Tokyo", noon,
              noon.replace(tzinfo=UTC), noon.astimezone(ZoneInfo(VIENNA)).replace(tzinfo=ZoneInfo("UTC")),
              datetime(2024, 7, 1, 14, tzinfo=timezone(timedelta(hours=2))), 1_719_835_200_000_000]  # fmt: skip
    values[5] = noon.replace(tzinfo=UTC).astimezone(ZoneInfo(VIENNA))
    with penstock.connect(engine=engine, zone="Asia/Tokyo") as db:
        db.execute(f"{STREAM} WITH (zone = '{VIENNA}')")
        query = db.query("SELECT ISTREAM at FROM s [NOW]")
        for value in values:
            db.push("s", [(value, 1)])
        db.push("s", pd.DataFrame({"at": [pd.Timestamp(noon)], "n": [1]}))
        (tmp_path / "s.csv").write_text("at,n\n" + "".join(f"{text},1\n" for text in values[:3]))
        play(core_of(db), {"s": tmp_path / "s.csv"})
        assert in_utc(query.fetch()["at"].to_pylist()) == [noon] * (len(values) + 4)
        # What comes out can go in again.
        with opened(engine, "America/New_York") as other:
            again = other.query("SELECT ISTREAM at FROM s [NOW]")
            other.push("s", [(noon.replace(tzinfo=ZoneInfo(VIENNA)), 1)])
            assert in_utc(again.fetch()["at"].to_pylist()) == [noon - timedelta(hours=2)]


def test_heartbeats_and_relations(engine: str, tmp_path: Path) -> None:
    with opened(engine) as db:
        db.heartbeat("s", "2024-07-01 12:00")
        assert db.stream("s").progress == datetime(2024, 7, 1, 10, tzinfo=UTC).timestamp() * 1e6
        db.execute("CREATE RELATION r (k INT, since TIMESTAMP)")
        query = db.query("SELECT k, since FROM s [RANGE UNBOUNDED] JOIN r ON n = k")
        db.execute("INSERT INTO r VALUES (1, '2024-01-01 12:00') AT '2024-07-01 13:00'")
        db.push("r", [(2, "2024-01-01 12:00")], at="2024-07-01 14:00")
        (tmp_path / "r.csv").write_text("k,since,ts\n3,2024-01-01 12:00,2024-07-01 15:00\n")
        play(core_of(db), {"r": tmp_path / "r.csv"}, close=False)
        db.execute("UPDATE r SET since = TIMESTAMP '2024-02-01 12:00' WHERE since = '2024-01-01 12:00' AND k = 3 "
                   "AT TIMESTAMP '2024-07-01 16:00:00'")  # fmt: skip
        for n in (1, 2, 3):
            db.push("s", [("2024-07-01 12:00", n)])
        db.close_stream("s")
        found = query.fetch().to_pylist()
    got = sorted((*in_utc([row["ts"]]), row["op"], row["k"], *in_utc([row["since"]])) for row in found)
    assert got == [
        (datetime(2024, 7, 1, 11), "+", 1, datetime(2024, 1, 1, 11)),
        (datetime(2024, 7, 1, 12), "+", 2, datetime(2024, 1, 1, 11)),
        (datetime(2024, 7, 1, 13), "+", 3, datetime(2024, 1, 1, 11)),
        (datetime(2024, 7, 1, 14), "+", 3, datetime(2024, 2, 1, 11)),
        (datetime(2024, 7, 1, 14), "-", 3, datetime(2024, 1, 1, 11)),
    ]


def test_late_rows_say_their_zone(engine: str, tmp_path: Path) -> None:
    """Written as text and read again by the same stream, they are the same instants."""
    for zone, own in ((VIENNA, ""), (None, f" WITH (zone = '{VIENNA}')")):
        with penstock.connect(engine=engine, zone=zone) as db:
            db.execute(STREAM + own)
            db.push("s", [("2024-07-02 00:00", 1), ("2024-07-01 12:00", 2)])
            rows = db.late("s")
        path = tmp_path / f"late{bool(zone)}.csv"
        with open_writer(path, "csv", rows.schema) as writer:
            writer.write(rows)
        with penstock.connect(engine=engine, zone=zone) as db:
            db.execute(STREAM + own)
            query = db.query("SELECT ISTREAM at FROM s [NOW]")
            play(core_of(db), {"s": path})
            assert in_utc(query.fetch()["at"].to_pylist()) == [datetime(2024, 7, 1, 10)]


# -- what does not depend on the zone ---------------------------------------------------------------------


def test_windows_and_order_are_the_same_in_all_zones(engine: str) -> None:
    def answers(zone: str | None, query: str) -> list[tuple[Any, ...]]:
        with opened(engine, zone) as db:
            found = db.query(query)
            db.push("s", [(text, i) for i, text in enumerate(NIGHT)])
            db.close_stream("s")
            return sorted((*in_utc([row["ts"]]), row["op"], *in_utc(list(row.values())[2:]))
                          for row in found.fetch().to_pylist())  # fmt: skip

    for query in (
        "SELECT window_start, window_end, count(*) FROM s [TUMBLING 1 DAY]",
        "SELECT count(*), max(at) FROM s [RANGE 1 HOUR]",
        "SELECT n FROM s [RANGE UNBOUNDED] ORDER BY at DESC LIMIT 2",
    ):
        assert answers(None, query) == answers(VIENNA, query) == answers("Asia/Kolkata", query)


def test_windows_of_local_days(engine: str) -> None:
    """TUMBLING 1 DAY is of days in UTC; windows that begin at a midnight elsewhere are asked for."""
    with opened(engine) as db:
        days = db.query("SELECT window_start, count(*) AS n FROM s [BEGIN WINDOW TIMESTAMP '2024-07-01 00:00:00' "
                        "END WINDOW TIMESTAMP '2024-07-02 00:00:00' HOP SIZE (1 DAY, 1 DAY)]")  # fmt: skip
        utc = db.query("SELECT window_start, count(*) AS n FROM s [TUMBLING 1 DAY]")
        db.push("s", [(f"2024-07-0{day} {hour}:30:00", 1) for day in (1, 2) for hour in ("00", "01", "03")])
        db.close_stream("s")
        assert [(*in_utc([r["window_start"]]), r["n"]) for r in days.fetch().to_pylist()] == [
            (datetime(2024, 6, 30, 22), 3), (datetime(2024, 7, 1, 22), 3),
        ]  # fmt: skip
        assert [r["n"] for r in utc.fetch().to_pylist()] == [2, 3, 1]


def test_set_operations_and_joins_of_days_and_instants(engine: str) -> None:
    with opened(engine) as db:
        db.execute("CREATE STREAM d (at TIMESTAMP, day DATE) TIMESTAMP BY at")
        union = db.query("SELECT at AS x FROM s [RANGE UNBOUNDED] UNION ALL SELECT day FROM d [RANGE UNBOUNDED]")
        joined = db.query("SELECT n FROM s [RANGE UNBOUNDED] JOIN d [RANGE UNBOUNDED] ON s.at = day")
        db.push("s", [("2024-07-01 00:00", 1)])
        db.push("d", [("2024-07-02 00:00", "2024-07-01")])
        for name in ("s", "d"):
            db.close_stream(name)
        assert in_utc(union.fetch()["x"].to_pylist()) == [datetime(2024, 6, 30, 22)] * 2
        assert joined.fetch()["n"].to_pylist() == [1]


# -- what is shown ----------------------------------------------------------------------------------------


def test_answers_are_shown_in_the_zone(engine: str, tmp_path: Path) -> None:
    with opened(engine) as db:
        query = db.query("SELECT ISTREAM at, n FROM s [NOW]")
        assert query.schema.field("at").type == pa.timestamp("us", VIENNA)
        db.push("s", [(text, i) for i, text in enumerate(NIGHT)])
        assert "2024-10-27 02:30:00" in str(db.execute("SHOW STREAMS"))
        assert "2024-10-27 02:30:00" in db._repr_html_()
        answers = query.fetch()
        assert answers.schema == query.schema
        assert_answers(answers, """
            ts                   op  at                   n
            2024-03-31 01:30:00  +   2024-03-31 01:30:00  0
            2024-03-31 03:30:00  +   2024-03-31 03:30:00  1
            2024-10-27 02:30:00  +   2024-10-27 02:30:00  2
            2024-10-27 01:30Z    +   2024-10-27 01:30Z    3
        """)  # fmt: skip
        for suffix, format in (("csv", "csv"), ("jsonl", "json"), ("parquet", "parquet")):
            path = tmp_path / f"answers.{suffix}"
            with open_writer(path, format, query.schema) as writer:  # type: ignore[arg-type]
                writer.write(answers)
        lines = (tmp_path / "answers.csv").read_text().splitlines()
        assert lines[1:] == [
            "2024-03-31T01:30:00+01:00,+,2024-03-31T01:30:00+01:00,0",
            "2024-03-31T03:30:00+02:00,+,2024-03-31T03:30:00+02:00,1",
            "2024-10-27T02:30:00+02:00,+,2024-10-27T02:30:00+02:00,2",
            "2024-10-27T02:30:00+01:00,+,2024-10-27T02:30:00+01:00,3",
        ]
    for suffix in ("csv", "jsonl", "parquet"):
        with opened(engine, "America/New_York") as db:
            query = db.query("SELECT ISTREAM at FROM s [NOW]")
            play(core_of(db), {"s": tmp_path / f"answers.{suffix}"})
            assert in_utc(query.fetch()["at"].to_pylist()) == in_utc(answers["at"].to_pylist())


def test_the_same_time_of_day_twice_is_two_rows(engine: str) -> None:
    with opened(engine) as db:
        query = db.query("SELECT at FROM s [ROWS 2]")
        db.push("s", [(text, i) for i, text in enumerate(NIGHT)])
        found = query.current()
        assert in_utc(found["at"].to_pylist()) == [datetime(2024, 10, 27, 0, 30), datetime(2024, 10, 27, 1, 30)]
        assert found.schema.field("at").type == pa.timestamp("us", VIENNA)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.csv"
    file.write_text("at,n\n2024-03-31 02:30:00,1\n2024-07-01 12:00:00,2\n")
    text = "SELECT hour(at) AS h, at AT TIME ZONE 'UTC' AS u FROM s [ROWS 1]"
    assert main(["query", text, str(file), "--engine", "local", "--zone", VIENNA, "--final", "-q"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["12", "2024-07-01", "10:00:00"]
    assert main(["query", text, str(file), "--engine", "local", "--zone", "Wien"]) == 2
    assert "there is no time zone `Wien`" in capsys.readouterr().err


# -- what is kept -----------------------------------------------------------------------------------------


def test_a_directory_keeps_the_zone_of_each_query(tmp_path: Path) -> None:
    text = "SELECT ISTREAM hour(at) AS h FROM s [NOW]"
    with directly():
        with opened("spark", VIENNA, path=tmp_path) as db:
            db.execute("CREATE STREAM d AS SELECT ISTREAM at, hour(at) AS h FROM s [NOW]")
            db.execute(f"CREATE QUERY old AS {text}")
            db.push("s", [("2024-07-01 12:00:00", 1)])
            assert db.queries["old"].fetch()["h"].to_pylist() == [12]
        with penstock.connect(tmp_path, engine="spark") as db:
            assert db.zone == VIENNA
            db.push("s", [("2024-07-01 12:00:00", 1)])
            assert db.queries["old"].fetch()["h"].to_pylist() == [12]
        with penstock.connect(tmp_path, engine="spark", zone="Asia/Tokyo") as db:
            new, derived = db.query(text), db.query("SELECT ISTREAM h FROM d [NOW]")
            db.push("s", [("2024-07-01 12:00:00", 1)])  # the stream still reads texts as it was declared
            assert db.queries["old"].fetch()["h"].to_pylist() == [12]
            assert derived.fetch()["h"].to_pylist() == [12]
            assert new.fetch()["h"].to_pylist() == [19]
        with penstock.connect(tmp_path, engine="spark") as db:
            assert db.zone == "Asia/Tokyo"


def test_plans_say_their_zone(engine: str) -> None:
    text = "SELECT ISTREAM hour(at) AS h, CAST(at AS STRING) AS t, at > '2024-07-01 12:00' AS later FROM s [NOW]"
    with opened(engine) as db:
        plan = db.explain(text, "json")
        shown = db.explain(text)
    assert "extract('hour', at, 'Europe/Vienna')" in shown
    assert "CAST(at AS STRING IN 'Europe/Vienna')" in shown
    assert "> TIMESTAMP '2024-07-01 10:00:00'" in shown
    assert "TIMESTAMP '…' in a plan is in UTC" in shown
    with opened(engine, None) as db:
        query = db.query(plan=plan)
        db.push("s", [("2024-07-01 10:00:00.5", 1)])
        assert query.fetch().to_pylist()[0]["t"] == "2024-07-01 12:00:00.500000"
        with pytest.raises(PlanError, match="there is no time zone Nowhere"):
            db.query(plan=plan.replace(VIENNA, "Nowhere"))


# -- what is refused --------------------------------------------------------------------------------------


def test_unknown_zones_are_refused(engine: str) -> None:
    for zone, said in (("Europe/Viena", "there is no time zone `Europe/Viena`; did you mean `Europe/Vienna`"),
                       ("Europe/Wien", "there is no time zone `Europe/Wien`; names are those of the tz database"),
                       ("CEST", "there is no time zone `CEST`"), (2, "2 is not a time zone")):  # fmt: skip
        with pytest.raises(InputError, match=said):
            penstock.connect(engine=engine, zone=zone)  # type: ignore[arg-type]
    with penstock.connect(engine=engine) as db:
        for statement, said in (
            (f"{STREAM} WITH (zone = 'Vienna')", "there is no time zone `Vienna`; did you mean `Europe/Vienna`"),
            (f"{STREAM} WITH (zone = 1)", "`zone` is 1; write for example zone = 'Europe/Vienna'"),
            (f"{STREAM} WITH (time = 'ms', zone = 'Europe/Vienna')", "`zone` means nothing"),
            ("CREATE STREAM t (t BIGINT) TIMESTAMP BY t WITH (zone = 'UTC')", "`zone` means nothing"),
        ):
            with pytest.raises(BindError, match=said):
                db.execute(statement)
        db.execute(STREAM)
        for query, said in (
            ("SELECT at AT TIME ZONE 'Wien' FROM s", "there is no time zone `Wien`"),
            ("SELECT from_utc_timestamp(at, 'europe/vienna') FROM s", "did you mean `Europe/Vienna`"),
            ("SELECT n AT TIME ZONE 'UTC' FROM s", "takes a TIMESTAMP"),
            ("SELECT at FROM s WHERE at > TIMESTAMP '2024-05-01 10:00:00 Wien'", "there is no time zone Wien"),
            ("SELECT at FROM s WHERE at > '2024-05-01 10:00:00 Wien'", "there is no time zone Wien"),
        ):
            with pytest.raises(BindError, match=said):
                db.query(query)
        with pytest.raises(CqlSyntaxError, match="every TIMESTAMP is an instant"):
            db.execute("CREATE STREAM x (at TIMESTAMP WITHOUT TIME ZONE) TIMESTAMP BY at")
        with pytest.raises(InputError):
            db.push("s", [("2024-05-01 10:00:00 Wien", 1)])
        with pytest.raises(InputError, match="there is no time zone Wien"):
            db.heartbeat("s", "2024-05-01 10:00:00 Wien")
        assert not db.catalog.streams.keys() - {"s"}
