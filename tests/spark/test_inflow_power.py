"""A loss of power while Spark reads a stream: what of Spark's checkpoint was not forced to the disk is gone, empty,
short or full of zeros. Each row comes once all the same.

What Spark does with its checkpoint is done here by a stand-in that refuses what Spark refuses, so that many cases can
be tried; a few have Spark itself.
"""

from __future__ import annotations

import json
import random
import shutil
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import penstock
from penstock.hosts.durable import keeper
from penstock.hosts.spark.parts.inflow import Inflow
from penstock.storage.files import Disk
from penstock.storage.shards import SOURCES
from penstock.testing import crash_copy
from tests.budget import examples
from tests.generated.language import Row
from tests.spark.direct import directly, host_of
from tests.spark.test_directory import power_lost
from tests.spark.test_inflow import Files, totals, wait_until
from tests.spark.test_inflow_generated import micro_batch

COLUMNS = "(t BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY t"
QUERY = "SELECT ISTREAM k, sum(v) AS total FROM s [ROWS 3] GROUP BY k"


class Power:
    """What has been forced to the disk below the folder of the sources: contents by file, names by folder."""

    def __init__(self) -> None:
        self.contents: dict[Path, bytes] = {}
        self.names: dict[Path, set[str]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        sync, sync_folder = Disk.sync, Disk.sync_folder

        def synced(disk: Disk, path: str) -> None:
            sync(disk, path)
            if path.startswith(SOURCES):
                self.contents[disk.path(path)] = disk.path(path).read_bytes()

        def named(disk: Disk, path: str) -> None:
            sync_folder(disk, path)
            self.names[disk.path(path)] = {p.name for p in disk.path(path).iterdir()}

        with patch.object(Disk, "sync", synced), patch.object(Disk, "sync_folder", named):
            yield

    def lose(self, root: Path, copy: Path, chosen: random.Random) -> list[str]:
        """Take from a copy of a directory what may not have been on the disk; says what."""
        lost: list[str] = []

        def losing(path: Path) -> None:
            origin = root / path.relative_to(copy)
            if path.name not in self.names.get(origin.parent, ()) and chosen.random() < 0.5:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                lost.append(f"{path.relative_to(copy)}: gone")
            elif path.is_dir():
                for inside in sorted(path.iterdir()):
                    losing(inside)
            elif self.contents.get(origin) != path.read_bytes():
                content = path.read_bytes()
                size = chosen.randrange(len(content) + 1)
                path.write_bytes(chosen.choice([content, b"", content[:size], bytes(len(content))]))
                lost.append(f"{path.relative_to(copy)}: {path.read_bytes()!r}")

        if (copy / SOURCES).exists():
            losing(copy / SOURCES)
        return lost


class Refused(Exception):
    """Spark would not start."""


class StandIn:
    """What Spark does with the checkpoint of a source of files, as far as anybody can see. Each file has some rows."""

    def __init__(self, place: Path, inflow: Inflow, db: penstock.Database, files: list[list[Row]]) -> None:
        self.place, self._inflow, self._db, self._files = place, inflow, db, files
        inflow.agree(place)
        for folder in ("offsets", "commits", "sources/0"):
            (place / folder).mkdir(parents=True, exist_ok=True)
        offsets, commits = self._log("offsets"), self._log("commits")
        if (place / "metadata").exists():
            uuid.UUID(json.loads(self._read(place / "metadata"))["id"])
        elif offsets or commits:
            raise Refused("no metadata")
        else:
            self._write(place / "metadata", json.dumps({"id": str(uuid.uuid4())}))
        self._taken = [f for number in self._log("sources/0") for f in self._lines(place / "sources/0" / str(number))]
        self._ends = {n: self._lines(place / "offsets" / str(n))[-1]["logOffset"] for n in offsets[-2:]}
        if offsets and offsets[-1] and offsets[-1] - 1 not in self._ends:
            raise Refused("the offset before the last one is missing")
        done = [n for n in commits[-1:] if self._lines(place / "commits" / str(n))]
        self.last = offsets[-1] if offsets else -1
        if offsets and done != [self.last]:
            self.run()

    def _log(self, folder: str) -> list[int]:
        return sorted(int(p.name) for p in (self.place / folder).iterdir() if p.name.isdigit())

    def _read(self, path: Path) -> bytes:
        """What a file has; refused as Hadoop refuses it if its checksum is another."""
        content, check = path.read_bytes(), path.with_name(f".{path.name}.crc")
        if check.exists() and check.read_bytes()[:4] == b"crc\0" and check.read_bytes() != self._sum(content):
            raise Refused(f"{path}: checksum")
        return content

    def _lines(self, path: Path) -> list[dict[str, int]]:
        version, *lines = self._read(path).decode().split("\n")
        if version != "v1" or not lines:
            raise Refused(f"{path}: incomplete log file")
        return [json.loads(line) for line in lines]

    def _sum(self, content: bytes) -> bytes:
        return b"crc\0" + bytes([0, 0, 2, 0]) + zlib.crc32(content).to_bytes(4, "big")

    def _write(self, path: Path, content: str) -> None:
        path.write_text(content)
        path.with_name(f".{path.name}.crc").write_bytes(self._sum(content.encode()))

    def see(self) -> bool:
        """Write down the files that are new."""
        seen = {f["file"] for f in self._taken}
        new = [{"file": i} for i in range(len(self._files)) if i not in seen]
        if new:
            self._taken += new
            number = max([-1, *self._log("sources/0")]) + 1
            self._write(self.place / "sources/0" / str(number), "\n".join(["v1", *map(json.dumps, new)]))
        return bool(new)

    def plan(self) -> bool:
        """Write down what the next micro-batch consists of, if there is anything."""
        end = max([-1, *self._log("sources/0")])
        if end == self._ends.get(self.last, -1):
            return False
        self.last += 1
        self._ends[self.last] = end
        self._write(self.place / "offsets" / str(self.last), f'v1\n{{"conf":{{}}}}\n{{"logOffset":{end}}}')
        return True

    def run(self) -> None:
        """Make the last micro-batch that was planned."""
        ends = range(self._ends.get(self.last - 1, -1) + 1, self._ends[self.last] + 1)
        files = [f["file"] for n in ends for f in self._lines(self.place / "sources/0" / str(n))]
        rows = [row for f in sorted(files) for row in self._files[f]]
        micro_batch(self._db, "s", self.last, rows, self._inflow.force)

    def commit(self) -> None:
        self._write(self.place / "commits" / str(self.last), 'v1\n{"nextBatchWatermarkMs":0}')

    def go(self, steps: int = 4) -> None:
        """A micro-batch with all that is new, as far as so many of its steps."""
        for step in [self.see, self.plan, self.run, self.commit][:steps]:
            if step() is False and step == self.plan:
                return


ops = st.lists(
    st.one_of(
        st.tuples(st.just("file"), st.integers(1, 4)),
        st.tuples(st.just("batch"), st.none()),
        st.tuples(st.just("batch"), st.none()),
        st.tuples(st.just("save"), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@example(todo=[("file", 1), ("batch", None)], steps=1, seed=0, sync="group")
@given(
    todo=ops, steps=st.integers(0, 4), seed=st.integers(0, 2**32), sync=st.sampled_from(["off", "group", "always"])
)
def test_each_row_comes_once_whatever_a_loss_of_power_takes(
    tmp_path_factory: pytest.TempPathFactory, todo: list[tuple[str, int | None]], steps: int, seed: int, sync: str
) -> None:
    """``steps``: how far the last micro-batch came before it."""
    folder, files, power, chosen = tmp_path_factory.mktemp("power"), list[list[Row]](), Power(), random.Random(seed)

    def add(count: int) -> None:
        start = sum(map(len, files))
        files.append([(i, i % 2, float(i)) for i in range(start, start + count)])

    def opened(path: Path) -> penstock.Database:
        return penstock.connect(path, engine="spark", trigger="push", shards=2, sync=sync)

    def reading(db: penstock.Database) -> StandIn:
        inflow = host_of(db).inflows["s"]
        return StandIn(Path(host_of(db).root) / SOURCES / str(inflow.definition.position), inflow, db, files)

    with directly(), patch.object(keeper, "SECONDS", 1e6):
        with power.watching(), opened(folder / "db") as db:
            db.execute(f"CREATE STREAM s {COLUMNS} FROM spark (format = 'parquet', path = 'nowhere')")
            db.query(QUERY, name="q")
            host_of(db).save()
            spark = reading(db)
            for what, many in todo:
                match what, many:
                    case "file", int(count):
                        add(count)
                    case "batch", _:
                        spark.go()
                    case _:
                        host_of(db).save()
            add(2)
            spark.go(steps)
            copy = crash_copy(db, folder / "copy")
            power_lost(copy, host_of(db).kept.keeper.store, random.Random(seed))
        power.lose(folder / "db", copy, chosen)
        with patch.object(Disk, "boot", "another"), opened(copy) as db:
            spark = reading(db)
            spark.go()
            add(3)
            spark.go()
            found = Counter(tuple(row.values()) for row in db.queries["q"].fetch().to_pylist())
    with penstock.connect(engine="reference") as db:
        db.execute(f"CREATE STREAM s {COLUMNS}")
        query = db.query(QUERY)
        for rows in files:
            db.push("s", rows)
        assert found == Counter(tuple(row.values()) for row in query.fetch().to_pylist())
    shutil.rmtree(folder)


def emptied(path: Path) -> None:
    path.write_bytes(b"")
    path.with_name(f".{path.name}.crc").unlink()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no metadata": lambda place: (place / "metadata").unlink(),
    "empty metadata": lambda place: emptied(place / "metadata"),
    "zeros for metadata": lambda place: (place / "metadata").write_bytes(bytes(45)),
    "an empty file of the source's log": lambda place: emptied(place / "sources/0/2"),
    "half a file of the source's log": lambda place: (place / "sources/0/2").write_bytes(b'v1\n{"path":"fil'),
    "half a checksum": lambda place: (place / "sources/0/.2.crc").write_bytes(b"crc\0\0\0\2\0\1\1"),
    "half a checksum of a commit": lambda place: (place / "commits/.1.crc").write_bytes(b"crc\0\0\0\2\0\1\1"),
}


@pytest.fixture(scope="module")
def lived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Power]:
    """A database after two micro-batches, with a third that Spark has planned, and what was forced of it."""
    folder, power = tmp_path_factory.mktemp("lived"), Power()
    files = Files(folder / "in")
    with power.watching(), penstock.connect(folder / "db", engine="spark", sync="group") as db:
        db.execute(f"CREATE STREAM s {COLUMNS} {files.source()}")
        db.query(QUERY, name="q")
        for i in range(2):
            files.add((i, 1, 1.0))
            wait_until(lambda n=i: db.stream("s").given > n)  # type: ignore[misc]
        place = folder / "db" / SOURCES / "0"
        wait_until(lambda: (place / "commits" / ".1.crc").exists())
        with patch.object(Inflow, "begin", side_effect=penstock.StorageError("the disk is full")):
            files.add((2, 1, 1.0))
            wait_until(lambda: db.stream("s").source != "running" and (place / "offsets" / "2").exists())
            crash_copy(db, folder / "copy")
    return folder, power


@pytest.mark.parametrize("damage", [*DAMAGE, 1, 2, 3])
def test_spark_goes_on_after_a_loss_of_power(
    lived: tuple[Path, Power], tmp_path: Path, damage: str | int
) -> None:
    """What of the checkpoint is damaged that is not needed, or a seed for what is lost."""
    folder, power = lived
    copy = tmp_path / "db"
    shutil.copytree(folder / "copy", copy)
    if isinstance(damage, int):
        power.lose(folder / "db", copy, random.Random(damage))
    else:
        DAMAGE[damage](copy / SOURCES / "0")
    with patch.object(Disk, "boot", "another"), penstock.connect(copy, engine="spark") as db:
        wait_until(lambda: db.stream("s").given >= 3 or "again" in str(db.stream("s").source))
        assert db.stream("s").source == "running"
        assert totals(db.queries["q"]) == [1.0, 2.0, 3.0]
