"""Queries that change parts while rows come give the reference's answers; also after restarts, kills half-way, and
tasks that are lost."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import penstock
from penstock.database.database import core_of
from penstock.hosts.spark.parts.part import Part
from penstock.hosts.spark.parts.task import Report, Task, Trouble
from penstock.testing import crash_copy
from tests.budget import examples
from tests.generated.language import Row
from tests.spark.direct import Direct, directly, host_of

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
        st.just(("save", None)),
        st.just(("restart", None)),
        st.just(("killed", None)),
        st.integers(1, 4).map(lambda n: ("lost", n)),
        st.integers(1, 4).map(lambda n: ("kill", n)),
    ),
    min_size=4,
    max_size=25,
)


class Mortal(Direct):
    """When the tasks of ``lost`` more micro-batches are done, nobody hears of the last ones. When those of ``killed``
    more are done, and nobody has heard of them yet, the directory is copied to ``to``."""

    lost = 0
    killed = 0
    to: Path | None = None
    db: penstock.Database | None = None

    def run(self, part: Part, tasks: Sequence[Task]) -> list[Report | Trouble]:
        reports = super().run(part, tasks)
        if not tasks:
            return reports
        Mortal.killed -= 1
        if Mortal.killed == 0 and Mortal.db is not None and Mortal.to is not None:
            crash_copy(Mortal.db, Mortal.to)
        Mortal.lost -= 1
        if Mortal.lost == 0:
            raise OSError("an executor is lost")
        return reports

    @classmethod
    def live(cls) -> None:
        """Nothing happens any more."""
        Mortal.lost = Mortal.killed = 0


class Both:
    """A database on Spark and the reference, given the same."""

    declare = DECLARE

    def __init__(self, folder: Path, trigger: object) -> None:
        self._folder, self._trigger = folder, trigger
        self._copies = 0
        Mortal.live()
        self.reference = penstock.connect(engine="reference")
        self.reference.execute(self.declare)
        self.spark = self._opened()
        self.spark.execute(self.declared())
        self._names: list[str] = []
        self._found: dict[str, Counter[object]] = {}
        self._pushed = Pushed()

    def declared(self) -> str:
        """What is declared on Spark."""
        return self.declare

    def give(self, name: str, rows: list[Row]) -> None:
        """Rows of a stream, for both."""
        self.reference.push(name, rows)
        self.spark.push(name, rows)

    def _opened(self) -> penstock.Database:
        Mortal.db = penstock.connect(
            self._folder, engine="spark", shards=3, batch_rows=5, trigger=self._trigger,  # type: ignore[arg-type]
        )  # fmt: skip
        Mortal.to = self._next
        return Mortal.db

    @property
    def _next(self) -> Path:
        return self._folder.with_name(f"killed{self._copies}")

    def do(self, what: str, arg: object) -> None:
        before = {name: Counter(rows) for name, rows in self._found.items()}
        try:
            self._do(what, arg)
        except penstock.EngineError as error:
            if "an executor is lost" not in error.message:
                raise
        if self._next.exists():
            # It was killed in a micro-batch meanwhile, before anything that this step has made it deliver.
            if what == "fetch":
                self._found = before
            self._go_on_there()

    def _go_on_there(self) -> None:
        to, before = self._next, self._folder
        self.spark.close()
        shutil.rmtree(before)
        self._folder = to
        self._copies += 1
        self.spark = self._opened()

    def _do(self, what: str, arg: object) -> None:
        match what, arg:
            case "push", (str(name), list(deltas)):
                self.give(name, self._pushed.rows(name, deltas))
            case "change", (k, name):
                at = max(self._pushed.times.values()) + 1
                text = f"DELETE FROM names WHERE k = {k} AT {at}"
                if not any(row[0] == k for row in core_of(self.reference).relations["names"].rows):
                    text = f"INSERT INTO names VALUES ({k}, '{name}') AT {at}"
                self.reference.execute(text)
                self.spark.execute(text)
            case "query", (text, priority):
                name = f"it{len(self._found)}"
                self._names.append(name)
                self._found[name] = Counter()
                for db in (self.reference, self.spark):
                    db.execute(f"CREATE QUERY {name} AS {text} WITH (priority = {priority})")
            case "stop", int(n) if self._names:
                name = self._names[n % len(self._names)]
                self._compare(name, closed=False)
                self._names.remove(name)
                self.reference.queries[name].stop()
                self.spark.queries[name].stop()
            case "fetch", int(n) if self._names:
                self._take(self._names[n % len(self._names)])
            case "configure", str(threading):
                self.spark.configure(threading=threading)
            case "restart", _:
                self.spark.close()
                self.spark = self._opened()
            case "save", _:
                host_of(self.spark).save()
            case "killed", _:
                crash_copy(self.spark, self._next)
            case "kill", int(n):
                Mortal.killed = n
            case "lost", int(n):
                Mortal.lost = n

    def end(self) -> None:
        Mortal.live()
        for db in (self.reference, self.spark):
            for name in ("s", "r"):
                db.close_stream(name)
        for name in self._names:
            self._compare(name)
        self.spark.close()

    def _take(self, name: str) -> None:
        try:
            table = self.spark.queries[name].fetch()
        except penstock.EngineError as error:
            assert "an executor is lost" in error.message  # noqa: PT017
            table = self.spark.queries[name].fetch()
        self._found[name].update(tuple(row.values()) for row in table.to_pylist())

    def _compare(self, name: str, *, closed: bool = True) -> None:
        """``closed``: there is nothing more to come."""
        Mortal.live()
        self._take(name)
        wanted = Counter(tuple(row.values()) for row in self.reference.queries[name].fetch().to_pylist())
        assert self._found[name] == wanted, name


def both(trigger: object, todo: Sequence[Op], kind: type[Both] = Both) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        run = kind(folder / "db", trigger)
        for what, arg in todo:
            run.do(what, arg)
        run.end()
    finally:
        Mortal.live()
        Mortal.db = None
        shutil.rmtree(folder)


FIRST: list[Op] = [("query", (QUERIES[0], 5)), ("query", (QUERIES[1], 9)), ("push", ("s", [1, 2, 3]))]


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ops)
def test_parts_that_change_and_a_driver_that_dies(todo: list[Op]) -> None:
    with directly(Mortal):
        both("push", [*FIRST, *todo])


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ops.map(lambda todo: [op for op in todo if op[0] != "kill"]), st.sampled_from([0, 3600]))
def test_parts_that_change_with_threads_of_their_own(todo: list[Op], trigger: float) -> None:
    """Killed at any moment of their micro-batches."""
    with directly(Mortal):
        both(trigger, [*FIRST, *todo])


@settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck))
@given(ops.map(lambda todo: [op for op in todo if op[0] not in ("kill", "lost")]))
def test_parts_that_change_on_spark_itself(spark: SparkSession, todo: list[Op]) -> None:
    both(0, [*FIRST, *todo])
