"""Rows that several tasks write side by side give the reference's answers, whoever reads them: other splits, no split,
other engines, after restarts, kills, and micro-batches that Spark makes again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.model.schema import arrow_schema
from tests.budget import examples
from tests.generated.language import Row
from tests.spark.direct import directly, host_of
from tests.spark.test_overtaking import Backlogged
from tests.spark.test_parts_generated import FIRST, QUERIES, Both, Mortal, Op, both, ops

MORE = (
    "SELECT ISTREAM v, count(*) AS n FROM s [RANGE 6] GROUP BY v",
    "SELECT ISTREAM k, v, sum(v) AS total FROM s [PARTITION BY k, v ROWS 2] GROUP BY k, v",
    "SELECT ISTREAM count(*) AS n FROM s [RANGE 4]",
)
PARTITIONS = 3


def micro_batch(
    db: penstock.Database, name: str, number: int, rows: list[Row], meanwhile: Callable[[], object] = lambda: None
) -> None:
    """What Spark does with rows of a source: row ``i`` is in partition ``i`` modulo ``PARTITIONS``. ``meanwhile``: what
    happens while tasks write."""
    inflow = host_of(db).inflows[name]
    work = inflow.begin(number)
    if work is None:
        return
    schema = arrow_schema(inflow.definition.schema)
    reports = []
    for partition in reversed(range(PARTITIONS)):
        mine = [dict(zip(schema.names, row, strict=True)) for row in rows[partition::PARTITIONS]]
        reports.append(work.done(partition, pa.Table.from_pylist(mine, schema).to_batches()))
    meanwhile()
    inflow.finish(work, number, reports)


def in_order(rows: list[Row]) -> list[Row]:
    """The rows of a micro-batch in the order in which they arrive."""
    found = [row for partition in range(PARTITIONS) for row in rows[partition::PARTITIONS]]
    return sorted(found, key=lambda row: int(str(row[0])))


class Fed(Both):
    """The stream ``s`` has a source."""

    def __init__(self, folder: Path, trigger: object) -> None:
        self.batches: list[list[Row]] = []
        super().__init__(folder, trigger)

    def declared(self) -> str:
        return self.declare.replace("SLACK 3", "SLACK 3 FROM spark (format = 'rate')")

    def give(self, name: str, rows: list[Row]) -> None:
        if name != "s":
            super().give(name, rows)
            return
        self.reference.push(name, in_order(rows))
        self.batches.append(rows)
        micro_batch(self.spark, name, len(self.batches) - 1, rows)

    def _do(self, what: str, arg: object) -> None:
        super()._do(what, arg)
        match what, arg:
            case "overtaken", (list(deltas), int(ahead)):
                rows = self._pushed.rows("s", deltas)
                at = int(str(rows[-1][0])) - ahead
                self.reference.heartbeat("s", at)
                self.reference.push("s", in_order(rows))
                self.batches.append(rows)
                micro_batch(self.spark, "s", len(self.batches) - 1, rows, lambda: self.spark.heartbeat("s", at))
        if what in ("restart", "killed") and self.batches:
            micro_batch(self.spark, "s", len(self.batches) - 1, self.batches[-1])  # Spark did not hear of it
        if what == "local":
            for engine in ("local", "spark"):
                self.spark.close()
                if engine == "local":
                    with penstock.connect(self._folder, engine="local") as db:
                        assert db.stream("s").given == self.reference.stream("s").given
            self.spark = self._opened()

    def end(self) -> None:
        assert Counter(map(str, self.spark.late("s").to_pylist())) == Counter(
            map(str, self.reference.late("s").to_pylist())
        )
        super().end()


class Alarmed(Fed, Backlogged):
    """The stream that has a source has priorities, too."""

    def declared(self) -> str:
        return self.declare.replace("PRIORITY BY v - 7", "PRIORITY BY v - 7 FROM spark (format = 'rate')")


fed_ops: st.SearchStrategy[list[Op]] = st.lists(
    st.one_of(
        ops.map(lambda some: some[0]),
        st.lists(st.integers(0, 6), min_size=1, max_size=9).map(lambda deltas: ("push", ("s", deltas))),
        st.sampled_from(MORE).map(lambda text: ("query", (text, 5))),
        st.just(("local", None)),
        st.tuples(st.lists(st.integers(0, 6), min_size=1, max_size=9), st.integers(-4, 9)).map(
            lambda beat: ("overtaken", beat)
        ),
    ),
    min_size=3,
    max_size=20,
)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fed_ops)
def test_a_stream_that_has_a_source(todo: list[Op]) -> None:
    with directly(Mortal):
        both("push", [*FIRST, ("query", (MORE[0], 5)), *todo], Fed)


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fed_ops)
def test_alarms_of_a_stream_that_has_a_source(todo: list[Op]) -> None:
    """They do not wait for slack, also where they are in files."""
    with directly(Mortal):
        both("push", [*FIRST, ("query", (QUERIES[5], 5)), *todo], Alarmed)


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fed_ops.map(lambda todo: [op for op in todo if op[0] != "kill"]))
def test_a_stream_that_has_a_source_with_threads(todo: list[Op]) -> None:
    with directly(Mortal):
        both(0, [*FIRST, ("query", (QUERIES[5], 5)), *todo], Fed)


def test_an_alarm_in_a_file_does_not_wait_for_slack(tmp_path: Path) -> None:
    with directly(), penstock.connect(tmp_path, engine="spark", shards=2, trigger="push") as db:
        db.execute("CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t SLACK 100 PRIORITY BY v - 100 "
                   "FROM spark (format = 'rate')")  # fmt: skip
        query = db.query("SELECT t, v FROM s WHERE v > 50")
        micro_batch(db, "s", 0, [(10, 1, 60), (20, 1, 900), (30, 2, 40)])
        assert query.fetch().column("v").to_pylist() == [900]
        micro_batch(db, "s", 1, [(300, 1, 61), (290, 1, 901)])
        assert sorted(query.fetch().column("v").to_pylist()) == [60, 901]
        db.close_stream("s")
        assert query.fetch().column("v").to_pylist() == [61]
