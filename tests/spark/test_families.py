"""Queries of a database on Spark that began together share what is equal in them; it does not show in their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.hosts.spark import shard
from penstock.hosts.spark.parts import definitions, feed
from tests.budget import examples
from tests.spark.direct import Direct, directly

DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE STREAM r (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE RELATION names (k BIGINT, name STRING) KEY (k);
INSERT INTO names VALUES (0, 'zero'), (1, 'one');
"""
QUERIES = (
    "SELECT a.k, a.v AS x, b.v AS y FROM s [RANGE 10] a JOIN r [RANGE 8] b ON a.k = b.k",
    "SELECT b.v AS x, a.k FROM r [RANGE 8] b JOIN s [RANGE 10] a ON b.k = a.k",
    "SELECT a.k, count(*) AS n FROM s [RANGE 10] a JOIN r [RANGE 8] b ON a.k = b.k GROUP BY a.k",
    "SELECT k, sum(v) AS t FROM s [RANGE 10] GROUP BY k",
    "SELECT k AS key, sum(v) AS total FROM s [RANGE 10] GROUP BY k",
    "SELECT v FROM s WHERE v > 3 AND k = 1",
    "SELECT v FROM s WHERE k = 1 AND v > 3",
    "SELECT v + 1 AS w FROM s WHERE v > 5",
    "SELECT s.v, n.name FROM s [RANGE 4] JOIN names n ON n.k = s.k",
    "SELECT k, sum(v) AS t FROM r [TUMBLING 7] GROUP BY k",
    "SELECT k, max(t) AS t FROM r [TUMBLING 7] GROUP BY k",
    "SELECT twice(v) AS w FROM s WHERE v > 5",
    "SELECT count(*) AS n FROM (SELECT ISTREAM k FROM s [RANGE 3]) [RANGE 4]",
)
Op = tuple[str, object]


def twice(value: int) -> int:
    return 2 * value


def lived(db: penstock.Database, ops: Sequence[Op], reopen: Iterator[penstock.Database] | None) -> dict[str, object]:
    """What each query answered."""
    found: dict[str, Counter[object]] = {}
    times = {"s": 0, "r": 0}
    for name, arg in ops:
        if name == "add" and f"q{arg}" not in found:
            db.query(QUERIES[int(str(arg))], name=f"q{arg}")
            found[f"q{arg}"] = Counter()
        elif name == "stop" and f"q{arg}" in db.queries:
            found[f"q{arg}"] += counted(db.queries[f"q{arg}"])
            db.queries[f"q{arg}"].stop()
        elif name == "open" and reopen is not None:
            db.close()
            db = next(reopen)
        elif name in times:
            rows = []
            for step in arg:  # type: ignore[attr-defined]
                times[name] += step
                rows.append((times[name], step % 3, step * 5 % 11))
            db.push(name, rows)
    for query in ("s", "r"):
        db.close_stream(query)
    for name, running in db.queries.items():
        found[name] += counted(running)
    db.close()
    return dict(found)


def counted(query: penstock.Query) -> Counter[object]:
    return Counter(repr(row) for row in query.fetch().to_pylist())


steps = st.lists(st.integers(0, 5), min_size=1, max_size=5)
numbers = st.integers(0, len(QUERIES) - 1)
ops: st.SearchStrategy[list[Op]] = st.lists(
    st.one_of(
        steps.map(lambda s: ("s", s)), steps.map(lambda s: ("r", s)), steps.map(lambda s: ("s", s)),
        numbers.map(lambda n: ("add", n)), numbers.map(lambda n: ("stop", n)), st.just(("open", None)),
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(first=st.lists(numbers, unique=True, max_size=8), ops=ops, slots=st.integers(1, 3), seed=st.integers(0, 9))
def test_families_do_not_show(
    tmp_path_factory: pytest.TempPathFactory, first: list[int], ops: list[Op], slots: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("db")
    events: list[Op] = [*(("add", n) for n in first), *ops]

    def begun(db: penstock.Database) -> penstock.Database:
        db.execute(DECLARE)
        db.create_function("twice", twice, args=["BIGINT"], returns="BIGINT")
        return db

    def opened() -> Iterator[penstock.Database]:
        while True:
            for module in (shard, definitions, feed):
                module.forget_all()
            yield penstock.connect(folder, engine="spark", shards=slots, trigger="push", functions=True)

    Direct.seed = seed
    with directly():
        openings = opened()
        ours = lived(begun(next(openings)), events, openings)
    assert ours == lived(begun(penstock.connect(engine="reference")), events, None), str(events)


def test_equal_parts_are_there_once(tmp_path: Path) -> None:
    with directly(), penstock.connect(tmp_path, engine="spark", shards=1, trigger="push") as db:
        db.execute(DECLARE)
        for i in range(20):
            db.query(f"SELECT k, sum(v) AS total{i} FROM s [RANGE 1000] GROUP BY k")
        db.push("s", [(i, i % 50, i) for i in range(1000)])
        stored = sum(f.stat().st_size for f in (tmp_path / "shards").glob("part-*/**/*") if f.is_file())
    # Of each row five numbers are kept in the window, and little more.
    assert stored < 3 * 1000 * 5 * 8
