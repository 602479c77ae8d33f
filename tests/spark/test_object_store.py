"""A database on Spark whose directory is in an object store, where driver and tasks find its files."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from pyarrow import fs

import penstock
from penstock.hosts.spark.parts.backlog import TOLD
from penstock.storage import objects
from penstock.storage.checking import check
from penstock.storage.log import SMALL
from tests.conftest import ROOT
from tests.spark import killed_live
from tests.spark.direct import directly
from tests.spark.processes import Struck, kill, program
from tests.spark.standalone import standalone
from tests.spark.test_kills import happened, wait_for
from tests.storage.bucket import Bucket

EMULATOR = ROOT / ".objects" / "bin" / "moto_server"
WAITS = 3


def test_everything_that_engines_do_with_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begun on Spark, closed, gone on, handed over to the local engine and back."""
    bucket, count, place = Bucket(), 6, "s3://bucket/db"
    monkeypatch.setattr(objects, "_filesystem", lambda scheme, root: (fs.PyFileSystem(bucket), "bucket"))
    found: dict[str, Counter[str]] = {name: Counter() for name in killed_live.QUERIES}
    with directly():
        for i, engine in enumerate(["spark", "spark", "local", "spark", "local", "spark"]):
            settings = {"trigger": 0.0, "shards": 2} if engine == "spark" else {}
            with penstock.connect(place, engine=engine, **settings) as db:  # type: ignore[arg-type]
                if i == 0:
                    db.execute(killed_live.DECLARE)
                    db.push("names", [(0, "zero"), (1, "one"), (2, "two")])
                    for name, text in killed_live.QUERIES.items():
                        db.execute(f"CREATE QUERY {name} AS {text}")
                for stream in ("s", "r", "f"):
                    db.push(stream, killed_live.in_order(i) if stream == "f" else killed_live.batch(stream, i))
                    if i == count - 1:
                        db.close_stream(stream)
                for name, query in db.queries.items():
                    found[name] += Counter(map(repr, query.fetch().to_pylist()))
            assert not check(place).damage
    assert found == killed_live.wanted(count)
    assert any(name.startswith("bucket/db/shards/answers/") for name in bucket.objects), "tasks have put large ones"


@pytest.mark.parametrize(("pushes", "rows"), [(30, 10), (40, 1_000), (3, 8_000)])
def test_tasks_are_told_what_small_pushes_have_and_read_others(
    pushes: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 small ones are told, 40 larger ones are more than a task is told, and of the last each is too large."""
    bucket = Bucket()
    monkeypatch.setattr(objects, "_filesystem", lambda scheme, root: (fs.PyFileSystem(bucket), "bucket"))
    with directly(), penstock.connect("s3://bucket/db", engine="spark", shards=2, trigger=3600.0) as db:
        db.execute("CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t")
        db.execute("CREATE RELATION names (k BIGINT, name STRING)")
        named = db.query("SELECT ISTREAM name, t FROM s [NOW] s JOIN names n ON s.k = n.k")
        db.push("names", [(k, f"n{k}") for k in range(3)])
        for start in range(0, pushes * rows, rows):
            db.push("s", [(t, t % 3, 1) for t in range(start, start + rows)])
        kinds = ("/streams/", "/relations/")
        entries = {n: len(bucket.objects[n][0]) for n in sorted(bucket.objects) if any(kind in n for kind in kinds)}
        bucket.read.clear()
        db.settle()
        assert named.fetch().column("t").to_pylist() == list(range(pushes * rows))
    told = 0
    for name, size in sorted(entries.items(), key=lambda entry: entry[0].rpartition("/")[2]):
        is_told = size <= SMALL and told + size <= TOLD
        assert (name in bucket.read) != is_told
        told += size if is_told else 0
    assert len(entries.keys() - bucket.read.keys()) == 1 + {30: 30, 40: 6, 3: 0}[pushes]


def test_what_spark_reads_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_filesystem", lambda scheme, root: (fs.PyFileSystem(Bucket()), "bucket"))
    with directly(), penstock.connect("s3://bucket/db", engine="spark", shards=1) as db:
        with pytest.raises(penstock.EngineError, match="stream `f`: how far Spark has read FROM spark"):
            db.execute(f"{killed_live.DECLARE.split(';')[2]} {killed_live.FED.format('files')}")
        assert "f" not in db.catalog.streams


@contextlib.contextmanager
def emulated(folder: Path) -> Iterator[str]:
    """A server that does as S3 does; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "s3.log").open("wb") as log:
        server = subprocess.Popen([str(EMULATOR), "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert time.monotonic() < until, (folder / "s3.log").read_text()
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.mark.skipif(not EMULATOR.exists(), reason="`make cluster` installs the object store and runs this")
@pytest.mark.timeout(1200)
@pytest.mark.xdist_group("killed")
def test_a_database_in_an_object_store_is_killed_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    count, log = 24, tmp_path / "log"
    with emulated(tmp_path) as server, standalone(tmp_path / "cluster") as cluster:
        options = f"scheme=http&region=us-east-1&endpoint_override={quote(server)}"
        there, _ = fs.FileSystem.from_uri(f"s3://penstock/?{options}&allow_bucket_creation=true")
        there.create_dir("penstock")
        place = f"s3://penstock/a/db?{options}"
        environment = {"KILLED_DB": place, "PENSTOCK_MASTER": cluster.master}
        kills: tuple[Struck, ...] = ("all", "driver and Java")
        for what in kills:
            with program("tests.spark.killed_live", tmp_path, count, log=log, **environment) as process:
                for _ in range(WAITS):
                    before = happened(tmp_path, "*.csv")
                    wait_for(lambda: happened(tmp_path, "*.csv") > before, process, log)  # noqa: B023
                kill(process, what)
            assert not (tmp_path / "done").exists(), "it had ended before it was killed"
        with program("tests.spark.killed_live", tmp_path, count, log=log, **environment) as process:
            assert process.wait(600) == 0, log.read_text()[-4000:]
        assert not check(place).damage
        assert not os.path.exists(tmp_path / "db")
    killed_live.check(tmp_path, count)
