"""A directory that engines take turns at, closed or killed in between, gives the reference's answers, each once."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.testing import crash_copy
from tests.budget import examples
from tests.generated.language import Case, cases
from tests.generated.regressions import REGRESSIONS
from tests.generated.running import Feed, answers, comparable
from tests.generated.test_engines import feeds, single_rows
from tests.spark.direct import directly

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
Turn = tuple[int, str, bool]
"""After which push another engine goes on, which one, and whether the one before is killed."""


def opened(folder: Path, engine: str, shards: int) -> penstock.Database:
    if engine == "local":
        return penstock.connect(folder, engine="local", functions=True)
    return penstock.connect(folder, engine="spark", shards=shards, trigger="push", functions=True)


def in_turns(case: Case, feed: Feed, first: str, turns: Sequence[Turn], shards: int) -> Counter[object]:
    """The answers of a run in which engines take turns."""
    found: Counter[object] = Counter()
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root, "0")
        db = opened(folder, first, shards)
        try:
            db.execute(case.declare)
            if case.beginning:
                db.push("q", list(case.beginning))
            db.query(case.query, name="it")
            if case.relation:
                db.push("q", [{"k": r[0], "name": r[1], "ts": at, "op": op} for at, op, r in case.relation])
            for i, (name, rows) in enumerate(feed):
                db.push(name, rows)
                for _, engine, killed in [turn for turn in turns if turn[0] == i]:
                    if killed:
                        folder = crash_copy(db, Path(root, f"{i + 1} {engine}"))
                    db.close()
                    db = opened(folder, engine, shards)
            for name in case.streams:
                db.close_stream(name)
            table = db.queries["it"].fetch()
            rows_found = zip(*(table.column(i).to_pylist() for i in range(table.num_columns)), strict=True)
            found.update(tuple(comparable(v) for v in row) for row in rows_found)
        finally:
            db.close()
    return found


@settings(max_examples=examples(150), deadline=None, suppress_health_check=RELAXED)
@given(
    case=cases(), data=st.data(), first=st.sampled_from(["local", "spark"]), shards=st.sampled_from([1, 2, 3]),
    inline=st.sampled_from([None, 0, 70]),
)  # fmt: skip
def test_engines_take_turns(case: Case, data: st.DataObject, first: str, shards: int, inline: int | None) -> None:
    feed = data.draw(feeds(case))
    turn = st.tuples(st.integers(0, max(0, len(feed) - 1)), st.sampled_from(["local", "spark"]), st.booleans())
    turns = data.draw(st.lists(turn, min_size=1, max_size=4, unique_by=lambda t: t[:2]))
    with directly(inline=inline):
        found = in_turns(case, feed, first, turns, shards)
    assert found == answers(case, "reference", feed), f"{case}\n  {feed} {first} {turns}"


@pytest.mark.parametrize("case", REGRESSIONS, ids=lambda c: c.query[:60])
def test_cases_that_once_failed(case: Case) -> None:
    feed = single_rows(case)
    with directly():
        found = in_turns(case, feed, "local", [(0, "spark", False), (1, "local", True), (2, "spark", True)], 2)
    assert found == answers(case, "reference")


def test_queries_share_and_come_and_go(tmp_path: Path) -> None:
    """Shared windows, functions, readers that have had some results, queries that are stopped and registered anew."""

    def rows(query: penstock.Query) -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in query.fetch().to_pylist()]

    told: dict[str, list[list[tuple[object, ...]]]] = {}
    for engines in (["local"] * 4, ["local", "spark", "local", "spark"], ["spark", "local", "spark", "local"]):
        folder = tmp_path / "-".join(engines)
        found = told["-".join(engines)] = []
        with directly():
            for turn, engine in enumerate(engines):
                with opened(folder, engine, 2) as db:
                    if not turn:
                        db.execute("CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t SLACK 2")
                        db.create_function("twice", lambda v: v * 2, args=["DOUBLE"], returns="DOUBLE")
                        for size in (3, 5):
                            db.query(f"SELECT k, sum(v) AS n FROM s [ROWS {size}] GROUP BY k", name=f"rows_{size}")
                        db.query("SELECT ISTREAM k, twice(v) AS w FROM s [RANGE 10] WHERE v > 1", name="twice")
                        db.query("SELECT DISTINCT k FROM s [RANGE 20]", name="keys")
                    if turn == 2:
                        db.queries["keys"].stop()
                        db.query("SELECT count(*) AS n FROM s [RANGE 20]", name="keys")
                    db.push("s", [(turn * 20 + i * 3 % 7, i % 3, float(i)) for i in range(12)])
                    found += [rows(db.queries[name]) for name in ("rows_3", "twice", *(["rows_5"] if turn % 2 else []))]
                    found.append(sorted(rows(db.queries["keys"])[-3:]))
        shutil.rmtree(folder)
    first, *others = told.values()
    for other in others:
        assert [sorted(map(repr, some)) for some in other] == [sorted(map(repr, some)) for some in first]


def test_a_directory_that_spark_refuses_stays_what_it_is(tmp_path: Path) -> None:
    with penstock.connect(tmp_path / "db", engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t WITH (overflow = 'drop oldest')")
        db.query("SELECT t FROM s", name="q")
        db.push("s", [(1,)])
    with directly(), pytest.raises(penstock.EngineError, match=r"`s`: engine `spark` drops no rows.*engine='local'"):
        penstock.connect(tmp_path / "db", engine="spark")
    with penstock.connect(tmp_path / "db", engine="local") as db:
        db.push("s", [(2,)])
        assert db.queries["q"].fetch()["t"].to_pylist() == [1, 2]
