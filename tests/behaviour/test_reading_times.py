"""to_date and to_timestamp without a pattern read texts as Spark does, in columns and as constants, on every engine."""

from __future__ import annotations

from datetime import date, datetime

import pytest

import penstock
from penstock.cql.declarations import definition_again
from penstock.database.database import core_of

DAYS = {
    "2024-02-29 12:34:56": date(2024, 2, 29),
    "2024-2-9": date(2024, 2, 9),
    "2024-02": date(2024, 2, 1),
    "2024": date(2024, 1, 1),
    "2024-02-29T12:34:56Z": date(2024, 2, 29),
    " 2024-02-29 whatever": date(2024, 2, 29),
    "2024-02-30": None,
    "29.02.2024": None,
}
MOMENTS = {
    "2024-02-29 12:34:56": datetime(2024, 2, 29, 12, 34, 56),
    "2024-2-9": datetime(2024, 2, 9),
    "2024-02": datetime(2024, 2, 1),
    "2024": datetime(2024, 1, 1),
    "2024-02-29T12:34:56Z": datetime(2024, 2, 29, 12, 34, 56),
    "2024-02-29 12": datetime(2024, 2, 29, 12),
    "2024-2-9 1:2:3.5+02:00": datetime(2024, 2, 8, 23, 2, 3, 500_000),
    "12:34": None,
    "2024-02-29 12:34Z": None,
}


@pytest.mark.parametrize(("function", "texts"), [("to_date", DAYS), ("to_timestamp", MOMENTS)])
def test_texts(engine: str, function: str, texts: dict[str, object]) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute("CREATE STREAM s (t BIGINT, x STRING) TIMESTAMP BY t")
        column = db.query(f"SELECT {function}(x) AS found FROM s")
        calls = ", ".join(f"{function}('{text}')" for text in texts)
        constants = db.query(f"SELECT {calls} FROM s")
        db.push("s", list(enumerate(texts)))
        assert column.fetch()["found"].to_pylist() == list(texts.values())
        assert column.failures == sum(found is None for found in texts.values())
        assert [c[0].as_py() for c in constants.fetch().columns[2:]] == list(texts.values())


def test_texts_in_a_zone(engine: str) -> None:
    with penstock.connect(engine=engine, zone="Europe/Vienna") as db:
        db.execute("CREATE STREAM s (t BIGINT, x STRING) TIMESTAMP BY t")
        query = db.query("SELECT unix_seconds(to_timestamp(x)) AS n, CAST(to_date(x) AS STRING) AS d FROM s")
        db.push("s", [(1, "2024-7-1"), (2, "2024-07-01 00:00:00Z")])
        found = query.fetch().select(["n", "d"]).to_pylist()
        assert found == [{"n": 1_719_784_800, "d": "2024-07-01"}, {"n": 1_719_792_000, "d": "2024-07-01"}]


def test_stored_texts_that_would_mean_something_else_are_refused() -> None:
    with penstock.connect(engine="reference") as db:
        db.execute("CREATE STREAM s (x STRING)")
        texts = {"old": "SELECT to_date(x) AS d FROM s", "same": "SELECT to_date(x, 'yyyy') AS d FROM s"}
        for name, text in texts.items():
            found = definition_again(f"CREATE VIEW {name} AS {text}", name, None, 2, db.catalog)
            if found is not None:
                core_of(db).put(found)
        with pytest.raises(penstock.CatalogError, match="it reads texts as Spark does"):
            db.query("SELECT d FROM old")
        assert db.query("SELECT d FROM same").status == "running"
