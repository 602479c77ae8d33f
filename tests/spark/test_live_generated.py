"""connect() on Spark gives the reference's answers: however pushed, split, cut into micro-batches and restarted."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import penstock
from tests.budget import examples
from tests.generated.language import Case, cases
from tests.generated.lives import Life, counted, lived, lives
from tests.generated.regressions import LIVES, REGRESSIONS
from tests.generated.running import Feed, answers, comparable
from tests.generated.test_engines import feeds, single_rows
from tests.spark.direct import directly

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def restarted(
    case: Case, feed: Feed, shards: int, batch_rows: int, restarts: frozenset[int], fetches: frozenset[int]
) -> Counter[object]:
    """The answers of a run that is stopped, and gone on with, after some of its pushes; fetched after some others."""
    folder = Path(tempfile.mkdtemp())
    found: Counter[object] = Counter()

    def opened() -> penstock.Database:
        return penstock.connect(
            folder, engine="spark", shards=shards, batch_rows=batch_rows, trigger="push" if not restarts else 3600
        )

    def fetch(query: penstock.Query) -> None:
        table = query.fetch()
        rows = zip(*(table.column(i).to_pylist() for i in range(table.num_columns)), strict=True)
        found.update(tuple(comparable(v) for v in row) for row in rows)

    try:
        db = opened()
        db.execute(case.declare)
        if case.beginning:
            db.push("q", list(case.beginning))
        db.query(case.query, name="it")
        if case.relation:
            db.push("q", [{"k": r[0], "name": r[1], "ts": at, "op": op} for at, op, r in case.relation])
        for i, (name, rows) in enumerate(feed):
            db.push(name, rows)
            if i in fetches:
                fetch(db.queries["it"])
            if i in restarts:
                db.close()
                db = opened()
        for name in case.streams:
            db.close_stream(name)
        fetch(db.queries["it"])
        db.close()
        return found
    finally:
        shutil.rmtree(folder)


INLINE = st.sampled_from([None, 0, 70])
"""Bytes up to which answers are in no file: as users have it, none, and some of both."""


@settings(max_examples=examples(120), deadline=None, suppress_health_check=RELAXED)
@given(
    case=cases(), data=st.data(), shards=st.sampled_from([1, 2, 5]), batch_rows=st.sampled_from([1, 3, 1000]),
    many=st.sampled_from([1, 3, 8192]), inline=INLINE,
)  # fmt: skip
def test_restarted_runs(
    case: Case, data: st.DataObject, shards: int, batch_rows: int, many: int, inline: int | None
) -> None:
    feed = data.draw(feeds(case))
    places = st.frozensets(st.integers(0, max(0, len(feed) - 1)), max_size=3)
    restarts, fetches = data.draw(places), data.draw(places)
    with directly(many=many, inline=inline):
        found = restarted(case, feed, shards, batch_rows, restarts, fetches)
    assert found == answers(case, "reference", feed), f"{case}\n  {feed} {restarts} {fetches}"


@pytest.mark.parametrize("case", REGRESSIONS, ids=lambda c: c.query[:60])
def test_cases_that_once_failed(case: Case) -> None:
    feed = single_rows(case)
    with directly():
        assert restarted(case, feed, 2, 2, frozenset([1]), frozenset([0])) == answers(case, "reference")


@settings(max_examples=examples(120), deadline=None, suppress_health_check=RELAXED)
@given(life=lives(), shards=st.sampled_from([1, 2, 5]), fetch=st.booleans(), inline=INLINE)
def test_lives(life: Life, shards: int, fetch: bool, inline: int | None) -> None:
    """Relations that change while queries come and go, with restarts; fetched at the end or after every step."""
    with directly(inline=inline):
        found = counted(lived(life, "spark", shards=shards, fetch=fetch))
    assert found == counted(lived(life, "reference")), str(life)


@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
def test_lives_that_once_failed(life: Life) -> None:
    with directly():
        assert counted(lived(life, "spark", shards=2)) == counted(lived(life, "reference"))


@settings(max_examples=examples(10), suppress_health_check=[*RELAXED, HealthCheck.function_scoped_fixture])
@given(life=lives(), fetch=st.booleans())
def test_lives_on_spark_itself(spark: SparkSession, life: Life, fetch: bool) -> None:
    assert counted(lived(life, "spark", shards=2, fetch=fetch)) == counted(lived(life, "reference")), str(life)


@settings(max_examples=examples(15), suppress_health_check=[*RELAXED, HealthCheck.function_scoped_fixture])
@given(case=cases(), data=st.data(), shards=st.sampled_from([1, 2, 5]))
def test_on_spark_itself(spark: SparkSession, case: Case, data: st.DataObject, shards: int) -> None:
    feed = data.draw(feeds(case))
    found = restarted(case, feed, shards, 4, frozenset([1]), frozenset())
    assert found == answers(case, "reference", feed), f"{case}\n  {feed}"
