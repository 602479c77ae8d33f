"""Databases on disk: what was acknowledged is there after a restart, and nothing is delivered twice."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.database.database import core_of
from penstock.hosts.durable import forms
from penstock.plan import meanings
from penstock.storage import log as logs
from penstock.storage.files import Disk
from penstock.storage.segments import Segment
from penstock.testing import crash_copy, full_disk
from tests.spark.direct import Direct, directly
from tests.spark.processes import interruptible

S = "CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t"


@pytest.fixture(autouse=True)
def without_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    """Spark itself is there only for the tests that ask for it."""
    if "spark" in request.fixturenames:
        yield
        return
    with directly():
        yield


def opened(folder: Path, **options: object) -> penstock.Database:
    return penstock.connect(folder / "db", engine="spark", functions=True, **options)  # type: ignore[arg-type]


def values(table: pa.Table, column: str) -> list[object]:
    return table.column(column).to_pylist()  # type: ignore[no-any-return]


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(f"""
            {S};
            CREATE STREAM gone (t BIGINT) TIMESTAMP BY t;
            DROP STREAM gone;
            CREATE RELATION names (k BIGINT, name STRING) KEY (k);
            CREATE VIEW big AS SELECT k, v FROM s [RANGE 10] WHERE v > 1;
            CREATE STREAM ones AS SELECT ISTREAM v FROM s WHERE k = 1;
            INSERT INTO names VALUES (1, 'one'), (2, 'two');
            CREATE QUERY named AS
              SELECT ISTREAM name, v FROM s [ROWS 1], names WHERE s.k = names.k INTO named_rows;
            UPDATE names SET name = 'uno' WHERE k = 1 AT 5;
        """)
        db.create_function("twice", lambda v: v * 2, args=["DOUBLE"], returns="DOUBLE")
        db.push("s", [(1, 1, 1.0), (2, 2, 2.0)])
        first = db.queries["named"].fetch()
        assert values(first, "name") == ["one", "two"]
        db.push("s", [(3, 2, 3.0)])
        positions = {s.name: s.position for s in db.catalog.streams.values()}
    with opened(tmp_path) as db:
        assert {s.name: s.position for s in db.catalog.streams.values()} == positions
        assert list(db.catalog.views) == ["big"]
        assert core_of(db).relations["names"].rows == [(2, "two"), (1, "uno")]
        assert values(db.queries["named"].fetch(), "name") == ["two"]
        db.push("s", [(6, 1, 4.0)])
        assert values(db.queries["named"].fetch(), "name") == ["uno"]
        more = db.query("SELECT ISTREAM twice(v) AS w FROM ones")
        db.push("s", [(7, 1, 5.0)])
        assert values(more.fetch(), "w") == [10.0]
        with pytest.raises(penstock.CatalogError, match="there is a stream `s` already"):
            db.execute(S)
        assert db.stream("s").given == 5


def test_rows_that_wait_and_rows_that_are_late(tmp_path: Path) -> None:
    declare = "CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t SLACK 5"
    with opened(tmp_path) as db:
        db.execute(declare)
        db.query("SELECT v FROM s", name="q")
        db.push("s", [(10, 1), (8, 2), (12, 3), (1, 4)])
        assert values(db.queries["q"].fetch(), "v") == []
    with opened(tmp_path) as db:
        assert (db.stream("s").progress, db.stream("s").late) == (7, 1)
        assert values(db.late("s"), "v") == [4]
        db.push("s", [(15, 5), (2, 6)])
        assert values(db.queries["q"].fetch(), "v") == [2, 1]
    with opened(tmp_path) as db:
        # What somebody has taken does not come again.
        assert values(db.late("s"), "v") == [6]
        db.close_stream("s")
        assert values(db.queries["q"].fetch(), "v") == [3, 5]
        assert db.queries["q"].status == "ended"
    with opened(tmp_path) as db:
        assert db.late("s").num_rows == 0
        assert db.queries["q"].status == "ended"
        with pytest.raises(penstock.StateError, match="closed"):
            db.push("s", [(20, 1)])


def test_history_for_new_queries(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t WITH (retain = '10 us')")
        db.push("s", [(i, i) for i in range(20)])
    with opened(tmp_path) as db:
        q = db.query("SELECT v FROM s [ROWS 100]")
        db.push("s", [(20, 20)])
        assert values(q.fetch(), "v") == list(range(9, 21))


def test_queries_that_failed_or_were_stopped(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(S)
        db.execute("CREATE QUERY strict AS SELECT 1 / k AS x FROM s WITH (strict = true)")
        db.query("SELECT v FROM s", name="stopped")
        db.query("SELECT 1 / k AS x FROM s", name="null")
        db.push("s", [(1, 1, 1.0)])
        db.push("s", [(2, 0, 1.0)])
        db.settle()
        db.queries["stopped"].stop()
        assert db.queries["strict"].status == "failed"
    with opened(tmp_path) as db:
        assert set(db.queries) == {"strict", "null"}
        strict, null = db.queries["strict"], db.queries["null"]
        assert values(strict.fetch(), "x") == [1.0]
        with pytest.raises(penstock.QueryFailed, match=r"query `strict`: .*zero"):
            strict.fetch()
        assert (values(null.fetch(), "x"), null.failures) == ([1.0, None], 1)
        db.push("s", [(3, 0, 1.0)])
        assert (null.fetch().num_rows, null.failures) == (1, 2)
        db.queries["strict"].stop()
    with opened(tmp_path) as db:
        assert set(db.queries) == {"null"}


def test_functions_whose_meaning_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was stored with another meaning is refused by name; all else goes on."""
    with monkeypatch.context() as before, opened(tmp_path) as db:
        before.setattr(meanings, "number_of", lambda plan: 1)
        before.setattr(meanings, "changed_in_plan", lambda tree, version: None)
        before.setattr(forms, "NUMBER", 1)
        db.execute(f"""
            {S};
            CREATE VIEW shown AS SELECT left(CAST(k AS STRING), 1) AS c FROM s [NOW];
            CREATE VIEW again AS SELECT c FROM shown;
            CREATE VIEW same AS SELECT upper('a') AS c, EXTRACT(hour FROM TIMESTAMP '2024-01-01') AS h FROM s [NOW];
            CREATE STREAM tens AS SELECT ISTREAM round(v, 1) AS r FROM s;
            CREATE QUERY near AS SELECT ISTREAM round(v, 2) AS r FROM s INTO nearer;
            CREATE QUERY whole AS SELECT ISTREAM round(v) AS r FROM s;
            CREATE QUERY first AS SELECT ISTREAM substr('abc', k, 1) AS c FROM s;
            CREATE QUERY second AS SELECT ISTREAM substr('abc', 2, 1) AS c FROM s;
        """)
        db.push("s", [(1, 0, 2.675)])
    with opened(tmp_path) as db:
        db.push("s", [(2, 0, 1.5)])
        assert {q.name: q.status for q in db.queries.values()} == {
            "near": "failed", "whole": "running", "first": "failed", "second": "running",
        }  # fmt: skip
        assert values(db.queries["whole"].fetch(), "r") == [3.0, 2.0]
        assert values(db.queries["second"].fetch(), "c") == ["b", "b"]
        first = db.queries["first"]
        assert values(first.fetch(), "c") == ["a"]
        with pytest.raises(penstock.PlanError, match=r"query `first`: `substr` has another meaning .* a start of 0 is"):
            first.fetch()
        for name, kind, why in (
            ("shown", "view", "`left` has another meaning now: it is '' for a negative number"),
            ("again", "view", "view `shown` cannot be used since it was stored: `left` has"),
            ("tens", "stream", "`round` has another meaning now: a REAL or DOUBLE is rounded as it is written"),
            ("nearer", "stream", "`round` has another meaning now"),
        ):
            with pytest.raises(penstock.CatalogError) as refused:
                db.query(f"SELECT * FROM {name}")
            assert f"{kind} `{name}` cannot be used since it was stored: {why}" in str(refused.value)
            assert f"DROP {kind.upper()} {name} and create it anew" in str(refused.value)
        db.query("SELECT c, h FROM same", name="fine")
        with pytest.raises(penstock.CatalogError, match="there is a view `shown` already"):
            db.execute("CREATE VIEW shown AS SELECT k FROM s [NOW]")
        db.execute("CREATE OR REPLACE VIEW shown AS SELECT left('abc', -1) AS c FROM s [NOW]")
        db.execute("DROP VIEW again; DROP STREAM tens")
        db.queries["first"].stop()
        anew = db.query("SELECT ISTREAM substr('abc', k, 1) || c AS c FROM s [NOW], shown", name="first")
    with opened(tmp_path) as db:
        db.push("s", [(3, 0, 1.5)])
        anew = db.queries["first"]
        assert values(anew.fetch(), "c") == ["a"]
        assert db.queries["near"].status == "failed"
        with pytest.raises(penstock.CatalogError, match="no stream, relation or view `tens`"):
            db.query("SELECT * FROM tens")


def test_answers_count_as_delivered_when_they_are_written(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(S)
        q = db.query("SELECT v FROM s", name="q")
        db.push("s", [(1, 1, 1.0)])
        assert q.transfer(lambda table: {"length": 10}) == 1
        db.push("s", [(2, 1, 2.0)])

        def fails(table: pa.Table) -> None:
            raise OSError("no space")

        with pytest.raises(OSError, match="no space"):
            q.transfer(fails)
        db.note(other="ä")
    with opened(tmp_path) as db:
        assert db.note() == {"length": 10, "other": "ä"}
        assert values(db.queries["q"].fetch(), "v") == [2.0]
    with opened(tmp_path) as db:
        assert db.queries["q"].fetch().num_rows == 0
        assert db.queries["q"].answered == 2


def test_a_half_written_frame_is_cut_off(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(S)
        db.query("SELECT v FROM s", name="q")
        db.push("s", [(1, 1, 1.0)])
        db.push("s", [(2, 1, 2.0)])
        assert db.queries["q"].fetch().num_rows == 2
        copy = crash_copy(db, tmp_path / "copy")
    (log,) = (copy / "streams" / "s").glob("*.segment")
    whole = log.read_bytes()
    *_, last = Segment(Disk(copy), f"streams/s/{log.name}").frames()
    log.write_bytes(whole + whole[last.start : last.start + 100])
    shutil.rmtree(tmp_path / "db")
    copy.rename(tmp_path / "db")
    with opened(tmp_path) as db:
        assert db.stream("s").given == 2
        db.push("s", [(3, 1, 3.0)])
        assert values(db.queries["q"].fetch(), "v") == [3.0]


def test_a_damaged_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SEGMENT", 200)
    with opened(tmp_path) as db:
        db.execute(S)
        db.query("SELECT v FROM s [ROWS 2]", name="q")
        for i in range(4):
            db.push("s", [(i, 1, 1.0)])
        copy = crash_copy(db, tmp_path / "copy")
    segments = sorted((copy / "streams" / "s").glob("*.segment"))
    assert len(segments) == 4
    content = bytearray(segments[1].read_bytes())
    content[len(content) // 2] ^= 1
    segments[1].write_bytes(content)
    with pytest.raises(penstock.StorageError, match=f"{segments[1].name}: damaged"):
        penstock.connect(copy, engine="spark")


def test_lost_state_is_named_and_can_be_put_back(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(S)
        db.query("SELECT k, sum(v) AS t FROM s [ROWS 3] GROUP BY k", name="q")
        db.push("s", [(1, 1, 1.0)])
        db.settle()
    manifests = list((tmp_path / "db" / "shards").glob("part-*/*/manifest-*.json"))
    assert manifests
    for manifest in manifests:
        manifest.rename(manifest.with_suffix(".away"))
    with opened(tmp_path) as db:
        with pytest.raises(penstock.CheckpointError, match=r"the state of micro-batch .* is missing in slot"):
            db.push("s", [(2, 1, 2.0)])
        assert db.queries["q"].status == "running", "the rows are there, and wait"
        with pytest.raises(penstock.CheckpointError, match="is missing in slot"):
            db.queries["q"].fetch()
        for manifest in manifests:
            manifest.with_suffix(".away").rename(manifest)
        assert values(db.queries["q"].fetch(), "t") == [1.0, 1.0, 3.0]


def test_a_full_disk_refuses_rows_and_loses_none(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute(f"{S}; CREATE RELATION names (k BIGINT) KEY (k)")
        q = db.query("SELECT v FROM s", name="q")
        db.push("s", [(1, 1, 1.0)])
        with full_disk():
            for refused in (
                lambda: db.push("s", [(2, 1, 2.0)]),
                lambda: db.push("names", [(1,)]),
                lambda: db.query("SELECT k FROM s", name="other"),
                lambda: db.execute("CREATE STREAM r (a BIGINT)"),
            ):
                with pytest.raises(penstock.StorageError, match="No space left on device"):
                    refused()
        assert (db.stream("s").given, db.stream("s").progress, core_of(db).relations["names"].rows) == (1, 1, [])
        db.push("s", [(1, 1, 3.0)])
        db.push("names", [(1,)])
        db.execute("CREATE STREAM r (a BIGINT)")
        assert set(db.queries) == {"q"}
        assert values(q.fetch(), "v") == [1.0, 3.0]
    with opened(tmp_path) as db:
        assert (db.stream("s").given, core_of(db).relations["names"].rows) == (2, [(1,)])
        assert list(db.catalog.streams) == ["s", "r"]


def test_results_for_which_there_is_no_room_come_when_there_is(tmp_path: Path) -> None:
    """The rows are in the log; the micro-batch is made again, and what it gives is there once."""
    with opened(tmp_path, trigger=3600) as db:
        db.execute(S)
        q = db.query("SELECT k, sum(v) AS t FROM s [ROWS 2] GROUP BY k", name="q")
        db.push("s", [(1, 1, 1.0)])
        db.push("s", [(2, 1, 2.0)])
        with full_disk(), pytest.raises(penstock.StorageError, match="No space left on device"):
            q.fetch()
        assert q.status == "running"
        assert values(q.fetch(), "t") == [1.0, 1.0, 3.0]
    with opened(tmp_path) as db:
        db.push("s", [(3, 1, 4.0)])
        assert values(db.queries["q"].fetch(), "t") == [3.0, 6.0]


def test_a_push_that_is_refused_half_way_is_not_there(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t SLACK 5")
        db.query("SELECT v FROM s", name="q")
        db.push("s", [(10, 1)])
        with full_disk(20), pytest.raises(penstock.StorageError, match="No space left"):
            db.push("s", [(11, 2), (1, 3)])  # one waits, one is late
        assert (db.stream("s").late, db.stream("s").given) == (0, 1)
        copy = crash_copy(db, tmp_path / "copy")
    for path in (tmp_path / "db", copy):
        with penstock.connect(path, engine="spark") as db:
            assert (db.late("s").num_rows, db.stream("s").given) == (0, 1)
            db.push("s", [(12, 4)])
            db.close_stream("s")
            assert values(db.queries["q"].fetch(), "v") == [1, 4]


def test_directories_that_are_no_databases(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(penstock.StorageError, match="file is not a directory"):
        penstock.connect(tmp_path / "file", engine="spark")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x.csv").write_text("x")
    with pytest.raises(penstock.StorageError, match=r"is not empty and not a database: it has `x\.csv`"):
        penstock.connect(tmp_path / "data", engine="spark")
    (tmp_path / "old" / "journal").mkdir(parents=True)
    (tmp_path / "old" / "lock").write_text("")
    with pytest.raises(penstock.StorageError, match=r"a database of release 0\.1, which this release does not open"):
        penstock.connect(tmp_path / "old", engine="spark")
    with pytest.raises(penstock.EngineError, match="engine `reference` keeps nothing on disk"):
        penstock.connect(tmp_path / "db", engine="reference")
    with pytest.raises(penstock.EngineError, match="engine `local` takes no settings of Spark: `shards`"):
        penstock.connect(engine="local", shards=2)
    for bad in ({"shards": 0}, {"batch_rows": 0}, {"trigger": -1}, {"trigger": "now"}):
        with pytest.raises(penstock.InputError, match="is"):
            opened(tmp_path, **bad)
    first = opened(tmp_path, shards=3)
    with pytest.raises(penstock.StorageError, match="is open in this process already"):
        opened(tmp_path)
    first.close()
    with pytest.raises(penstock.EngineError, match="was begun with 3 shards, not 2; say shards=3"):
        opened(tmp_path, shards=2)
    opened(tmp_path).close()


def test_a_directory_in_the_place_of_one_that_was_removed(tmp_path: Path) -> None:
    """Its files may have the names of those that a worker remembers."""
    for i in range(2):
        with opened(tmp_path) as db:
            db.execute(f"{S}; CREATE RELATION names (k BIGINT, name STRING) KEY (k)")
            q = db.query("SELECT ISTREAM name, v FROM s [ROWS 1], names WHERE s.k = names.k")
            db.push("names", [(1, f"name {i}")])
            db.push("s", [(1, 1, float(i))])
            assert [(row["name"], row["v"]) for row in q.fetch().to_pylist()] == [(f"name {i}", float(i))]
        shutil.rmtree(tmp_path / "db")


def test_a_function_that_cannot_be_sent(tmp_path: Path) -> None:
    lock = threading.Lock()
    with opened(tmp_path) as db:

        def locked(v: float) -> float:
            with lock:
                return v

        with pytest.raises(penstock.InputError, match="function `locked` cannot be stored with the database"):
            db.create_function("locked", locked, args=["DOUBLE"], returns="DOUBLE")
        assert "locked" not in db.catalog.functions


def test_answers_come_by_themselves(tmp_path: Path) -> None:
    with opened(tmp_path, trigger=0) as db:
        db.execute(S)
        q = db.query("SELECT v FROM s")
        heard: list[float] = []
        enough = threading.Event()

        def listen(table: pa.Table) -> None:
            heard.extend(values(table, "v"))  # type: ignore[arg-type]
            if len(heard) == 50:
                enough.set()

        q.subscribe(listen)
        for i in range(50):
            db.push("s", [(i, 1, float(i))])
        assert enough.wait(60)
        assert heard == [float(i) for i in range(50)]
        other = db.query("SELECT v FROM s")
        db.push("s", [(60, 1, 1.0)])
        db.close_stream("s")
        assert [values(t, "v") for t in other] == [[1.0]]


def test_metrics_of_micro_batches(tmp_path: Path) -> None:
    with opened(tmp_path, batch_rows=2) as db:
        db.execute(S)
        db.query("SELECT v FROM s WHERE v > 1", name="q")
        db.push("s", [(1, 1, 1.0), (2, 1, 2.0)])
        db.push("s", [(3, 1, 3.0)])
        found = db.metrics()
        assert [values(found, c) for c in ("frames", "rows", "answers")] == [[0, 1, 1], [0, 2, 1], [0, 1, 1]]
        assert all(v >= 0 for c in ("seconds", "opening", "working", "storing") for v in values(found, c))  # type: ignore[operator]


@pytest.mark.parametrize("processes", [1, 3])
def test_metrics_say_which_slots_were_not_in_memory(processes: int, tmp_path: Path) -> None:
    class Some(Direct):
        pass

    Some.processes = processes
    with directly(Some), penstock.connect(tmp_path, engine="spark", shards=2, trigger="push") as db:
        db.execute(S)
        db.query("SELECT k, sum(v) AS t FROM s [ROWS 5] GROUP BY k", name="q")
        for i in range(20):
            db.push("s", [(i, i % 3, 1.0)])
        found = db.metrics()
        missed = [sum(values(found, column)) for column in ("caught_up", "loaded")]  # type: ignore[arg-type]
        if processes == 1:
            assert missed == [0, 0]
        else:
            assert missed[1] == 2 * (processes - 1), "once in each other process"
            assert missed[0] > 5


def test_shards_are_explained(tmp_path: Path) -> None:
    with opened(tmp_path, shards=3) as db:
        db.execute(S)
        assert db.explain("SELECT k, sum(v) AS t FROM s [RANGE 5] GROUP BY k").endswith("spark: 3 shards: s by k")
        assert "partitioning: none, so one shard: ROWS 3 counts the rows" in db.explain("SELECT v FROM s [ROWS 3]")
        assert "any row in any" in db.explain("SELECT v FROM s WHERE v > 1")




def test_a_worker_that_dies_in_a_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    marker = str(tmp_path / "died")

    def deadly(v: float) -> float:
        import os
        import signal

        if v == 3.0 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return v

    with opened(tmp_path) as db:
        db.execute(S)
        db.create_function("deadly", deadly, args=["DOUBLE"], returns="DOUBLE")
        q = db.query("SELECT k, sum(deadly(v)) AS t FROM s [ROWS 2] GROUP BY k")
        db.push("s", [(1, 1, 1.0)])
        db.push("s", [(2, 1, 3.0)])
        db.push("s", [(3, 1, 5.0)])
        assert values(q.fetch(), "t") == [1.0, 1.0, 4.0, 4.0, 8.0]
        assert os.path.exists(marker)


def test_interrupted_runs_say_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "q.cql").write_text(f"{S}; CREATE QUERY q AS SELECT v FROM s")
    (tmp_path / "s.csv").write_text("t,k,v\n" + "".join(f"{i},1,1.0\n" for i in range(100_000)))
    command = [sys.executable, "-m", "penstock.cli.main", "run", "q.cql", "--input", "s=s.csv"]
    command += ["--output", "out", "--database", "db", "--engine", "spark", "--master", "local[1]"]
    run = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=_environment(), preexec_fn=interruptible
    )
    # The answers wait for Spark, which takes seconds to start; the file is there before.
    while not (tmp_path / "out" / "q.csv").exists() and run.poll() is None:
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=120)
    assert run.returncode == 130
    first, second = said.splitlines()[-2:]
    done = r"(rows in s [\d,]+; answers q [\d,]+|no row was read)"
    assert re.fullmatch(rf"penstock: interrupted after \d+:\d\d: {done}", first)
    assert second == "penstock: everything up to there is in db; the same command goes on from it"
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=_environment(), timeout=300)
    assert (again.returncode, len((tmp_path / "out" / "q.csv").read_text().splitlines())) == (0, 100_001), again.stderr


def test_without_java(tmp_path: Path) -> None:
    script = "import penstock; penstock.connect(engine='spark')"
    environment = _environment() | {"PATH": "/nowhere"}
    environment.pop("JAVA_HOME", None)
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert run.stderr.splitlines()[-1].startswith(
        "penstock.EngineError: Java was not found: there is none on the PATH; Spark needs Java 17 or later, "
    )
    assert run.stderr.rstrip().endswith("; engine='local' needs no Java")


def test_workers_find_modules_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "helpers.py").write_text("def twice(v):\n    return 2 * v\n")
    (tmp_path / "app" / "main.py").write_text(
        "import helpers, penstock\n"
        "with penstock.connect(engine='spark') as db:\n"
        "    db.execute('CREATE STREAM s (t BIGINT, v DOUBLE) TIMESTAMP BY t')\n"
        "    db.create_function('twice', helpers.twice, args=['DOUBLE'], returns='DOUBLE')\n"
        "    query = db.query('SELECT twice(v) AS w FROM s')\n"
        "    db.push('s', [(1, 4.0)])\n"
        "    print(query.fetch().column('w').to_pylist())\n"
    )
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [sys.executable, tmp_path / "app" / "main.py"], cwd=tmp_path / "elsewhere", capture_output=True, text=True,
        timeout=200,
    )  # fmt: skip
    assert done.stdout == "[8.0]\n", done.stderr


def test_log_noise_on_request(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import penstock
        with penstock.connect(engine="spark", master="local[1]") as db:
            db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t")
            q = db.query("SELECT t FROM s")
            db.push("s", [(1,)])
            print(q.fetch().num_rows)
    """)
    log = tmp_path / "spark.log"
    environment = _environment() | {"PENSTOCK_SPARK_LOG": str(log)}
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=300)
    assert (run.stdout, run.stderr) == ("1\n", "")
    assert "Spark" in log.read_text()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
