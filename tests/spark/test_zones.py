"""The time zone of a Spark session: functions, texts and literals mean what they mean in Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import penstock
import penstock.spark as ps
from penstock.model.errors import InputError

TIMES = (
    "1850-01-01 00:00:00", "1893-03-31 23:06:00", "1945-05-24 00:30:00", "1999-12-31 23:30:00", "2011-12-30 12:00:00",
    "2018-11-04 02:59:59", "2018-11-04 03:00:00", "2024-03-31 00:59:59", "2024-03-31 01:30:00", "2024-07-01 12:00:00",
    "2024-10-27 00:30:00", "2024-10-27 01:30:00", "2024-10-27 15:15:00", "2500-07-01 22:30:00", "9999-12-30 12:00:00",
)  # fmt: skip
COLUMNS = """hour(at) AS h, minute(at) AS m, CAST(day(at) AS BIGINT) AS d, CAST(dayofweek(at) AS BIGINT) AS w,
    CAST(at AS STRING) AS t, CAST(CAST(at AS DATE) AS STRING) AS date, date_trunc('hour', at) AS th,
    date_trunc('day', at) AS td, date_trunc('week', at) AS tw, date_trunc('month', at) AS tm,
    at < TIMESTAMP '2024-03-31 02:30:00' AS gap, at <= TIMESTAMP '2024-10-27 02:30:00' AS twice,
    at < TIMESTAMP '2024-07-01 12:00:00+02:00' AS berlin, at < TIMESTAMP '2024-07-01 12:00:00 Asia/Tokyo' AS tokyo,
    at >= DATE '2024-07-01' AS day, CAST(text AS TIMESTAMP) AS parsed, CAST(CAST(at AS DATE) AS TIMESTAMP) AS midnight,
    from_utc_timestamp(at, 'Asia/Kolkata') AS kolkata, to_utc_timestamp(at, 'Europe/Vienna') AS vienna,
    face = at AS same, hour(face) AS face, current_timezone() AS here"""


@pytest.fixture(params=["Europe/Vienna", "America/Sao_Paulo", "Pacific/Apia", "+05:30"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def test_functions_mean_what_they_mean_in_spark(spark: SparkSession, zone: str) -> None:
    rows = ", ".join(f"(TIMESTAMP '{t}Z', TIMESTAMP_NTZ '{t}', '{t}')" for t in TIMES)
    frame = spark.sql(f"SELECT * FROM VALUES {rows} AS (at, face, text)")
    ours = ps.sql(spark, f"SELECT ISTREAM at, {COLUMNS} FROM s [NOW]", timestamps={"s": "at"}, s=frame)
    theirs = spark.sql(
        f"SELECT at, {COLUMNS} FROM {{s}}", s=frame
    )
    got = [row.asDict() for row in ours.drop("ts", "op").orderBy("at").collect()]
    wanted = [row.asDict() for row in theirs.orderBy("at").collect()]
    assert got == wanted


def test_what_clocks_show_has_no_zone(spark: SparkSession, zone: str) -> None:
    frame = spark.sql("SELECT TIMESTAMP_NTZ '2024-03-31 02:30:00' AS at UNION ALL SELECT TIMESTAMP_NTZ '2024-07-01'")
    query = "SELECT ISTREAM at, hour(at) AS h, at > TIMESTAMP '2024-03-31 02:29:00' AS later FROM s [NOW]"
    found = ps.sql(spark, query, s=frame)
    assert found.schema["at"].dataType.simpleString() == "timestamp_ntz"
    assert sorted((str(r.at), r.h, r.later) for r in found.collect()) == [
        ("2024-03-31 02:30:00", 2, True), ("2024-07-01 00:00:00", 0, True),
    ]  # fmt: skip


def test_a_database_has_the_zone_of_the_session(spark: SparkSession, zone: str) -> None:
    with penstock.connect(engine="spark") as db:
        assert db.zone == zone
        db.execute("CREATE STREAM s (at TIMESTAMP) TIMESTAMP BY at")
        query = db.query("SELECT ISTREAM hour(at) AS h, CAST(at AS STRING) AS t FROM s [NOW]")
        db.push("s", [("2024-07-01 12:00:00",)])
        assert query.fetch().select(["h", "t"]).to_pylist() == [{"h": 12, "t": "2024-07-01 12:00:00"}]
    with penstock.connect(engine="spark", zone="UTC") as db:
        assert db.zone == "UTC"
    with penstock.connect(engine="spark", spark={"spark.sql.session.timeZone": "Asia/Tokyo"}) as db:
        assert db.zone == "Asia/Tokyo"


def test_a_zone_of_the_session_that_is_not_known(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "PST")  # one of Java's own names
    try:
        with pytest.raises(InputError, match=r"spark.sql.session.timeZone: there is no time zone `PST`"):
            ps.sql(spark, "SELECT at FROM s [NOW]", s=spark.sql("SELECT TIMESTAMP '2024-01-01' AS at"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
