"""Queries that change parts while rows come give the reference's answers; also after restarts, and kills half-way."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import penstock
from penstock.database.database import core_of
from penstock.hosts.spark.live import host
from penstock.hosts.spark.live.plan import Plan, Report
from tests.budget import examples
from tests.generated.language import Row
from tests.spark.direct import Direct, directly

DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t SLACK 3;
CREATE STREAM r (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE RELATION names (k BIGINT, name STRING) KEY (k);
"""
QUERIES = (
    "SELECT a.k, a.v AS x, b.v AS y FROM s [RANGE 10] a LEFT JOIN r [RANGE 8] b ON a.k = b.k",
    "SELECT ISTREAM k, count(*) AS n, max(v) AS most FROM s [ROWS 7] GROUP BY k",
    "SELECT ISTREAM name, s.v FROM s [NOW], names WHERE s.k = names.k",
    "SELECT k, sum(v) AS total FROM r [HOPPING 9 EVERY 4] GROUP BY k",
    "SELECT k, sum(v) AS total FROM r [RANGE 12] GROUP BY k",
    "SELECT t, v FROM s WHERE v > 3",
    "SELECT DISTINCT k FROM s [RANGE 6]",
)
Op = tuple[str, object]


@dataclass
class Pushed:
    """Numbers for rows: times go on, a little out of order in s."""

    times: dict[str, int] = field(default_factory=lambda: {"s": 0, "r": 0})

    def rows(self, name: str, deltas: Sequence[int]) -> list[Row]:
        found: list[Row] = []
        for delta in deltas:
            self.times[name] += delta
            back = delta % 3 if name == "s" else 0
            found.append((self.times[name] - back, delta * 7 % 3, delta * 5 % 11))
        return found


pushes = st.tuples(st.sampled_from(["s", "r"]), st.lists(st.integers(0, 6), min_size=1, max_size=6))
ops: st.SearchStrategy[list[Op]] = st.lists(
    st.one_of(
        pushes.map(lambda p: ("push", p)),
        pushes.map(lambda p: ("push", p)),
        st.tuples(st.integers(0, 2), st.sampled_from("abc")).map(lambda c: ("change", c)),
        st.tuples(st.sampled_from(QUERIES), st.sampled_from([0, 5, 5, 9])).map(lambda q: ("query", q)),
        st.integers(0, 5).map(lambda n: ("stop", n)),
        st.integers(0, 5).map(lambda n: ("fetch", n)),
        st.sampled_from(["direct", "graph", "operator", "hybrid"]).map(lambda t: ("configure", t)),
        st.just(("restart", None)),
        st.integers(1, 4).map(lambda n: ("kill", n)),
    ),
    min_size=4,
    max_size=25,
)


class _Killed(BaseException):
    """The process is no more: neither is what it has not stored."""


class Mortal(Direct):
    """Dies when its tasks are done and nobody knows of it yet, in so many micro-batches."""

    left = 0

    def run(self, plan: Plan, priority: int, group: str, title: str) -> list[Report]:
        reports = super().run(plan, priority, group, title)
        Mortal.left -= 1
        if Mortal.left == 0:
            raise _Killed
        return reports


class Both:
    """A database on Spark and the reference, given the same."""

    declare = DECLARE

    def __init__(self, folder: Path, trigger: object) -> None:
        self._folder, self._trigger = folder, trigger
        self._reference = penstock.connect(engine="reference")
        self._reference.execute(self.declare)
        self._spark = self._opened()
        self._spark.execute(self.declare)
        self._names: list[str] = []
        self._found: dict[str, Counter[object]] = {}
        self._pushed = Pushed()

    def _opened(self) -> penstock.Database:
        return penstock.connect(self._folder, engine="spark", shards=2, batch_rows=5, trigger=self._trigger)  # type: ignore[arg-type]

    def do(self, what: str, arg: object) -> None:
        try:
            self._do(what, arg)
        except _Killed:
            self._spark.close()
            self._spark = self._opened()

    def _do(self, what: str, arg: object) -> None:
        match what, arg:
            case "push", (str(name), list(deltas)):
                rows = self._pushed.rows(name, deltas)
                self._reference.push(name, rows)
                self._spark.push(name, rows)
            case "change", (k, name):
                at = max(self._pushed.times.values()) + 1
                text = f"DELETE FROM names WHERE k = {k} AT {at}"
                if not any(row[0] == k for row in core_of(self._reference).relations["names"].rows):
                    text = f"INSERT INTO names VALUES ({k}, '{name}') AT {at}"
                self._reference.execute(text)
                self._spark.execute(text)
            case "query", (text, priority):
                name = f"it{len(self._found)}"
                self._names.append(name)
                self._found[name] = Counter()
                for db in (self._reference, self._spark):
                    db.execute(f"CREATE QUERY {name} AS {text} WITH (priority = {priority})")
            case "stop", int(n) if self._names:
                name = self._names[n % len(self._names)]
                self._compare(name, closed=False)
                self._names.remove(name)
                self._reference.queries[name].stop()
                self._spark.queries[name].stop()
            case "fetch", int(n) if self._names:
                self._take(self._names[n % len(self._names)])
            case "configure", str(threading):
                self._spark.configure(threading=threading)
            case "restart", _:
                self._spark.close()
                self._spark = self._opened()
            case "kill", int(n):
                Mortal.left = n

    def end(self) -> None:
        Mortal.left = 0
        for db in (self._reference, self._spark):
            for name in ("s", "r"):
                db.close_stream(name)
        for name in self._names:
            self._compare(name)
        self._spark.close()

    def _take(self, name: str) -> None:
        table = self._spark.queries[name].fetch()
        self._found[name].update(tuple(row.values()) for row in table.to_pylist())

    def _compare(self, name: str, *, closed: bool = True) -> None:
        """``closed``: there is nothing more to come."""
        Mortal.left = 0
        self._take(name)
        wanted = Counter(tuple(row.values()) for row in self._reference.queries[name].fetch().to_pylist())
        assert self._found[name] == wanted, name


def both(trigger: object, todo: Sequence[Op], kind: type[Both] = Both) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        run = kind(folder / "db", trigger)
        for what, arg in todo:
            run.do(what, arg)
        run.end()
        assert [p for p in (folder / "db" / "state").glob("part-*") if not any(p.iterdir())] == []
    finally:
        Mortal.left = 0
        shutil.rmtree(folder)


FIRST: list[Op] = [("query", (QUERIES[0], 5)), ("query", (QUERIES[1], 9)), ("push", ("s", [1, 2, 3]))]


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ops)
def test_parts_that_change_and_a_driver_that_dies(todo: list[Op]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "Cluster", Mortal)
        both("push", [*FIRST, *todo])


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ops.map(lambda todo: [op for op in todo if op[0] != "kill"]), st.sampled_from([0, 3600]))
def test_parts_that_change_with_threads_of_their_own(todo: list[Op], trigger: float) -> None:
    with directly():
        both(trigger, [*FIRST, *todo])


@settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))
@given(ops.map(lambda todo: [op for op in todo if op[0] != "kill"]))
def test_parts_that_change_on_spark_itself(spark: SparkSession, todo: list[Op]) -> None:
    both(0, [*FIRST, *todo])
