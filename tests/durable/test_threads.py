"""Many threads push, read, listen, register and stop queries, set how the work is done and save, on one directory:
afterwards every row is in every answer once, and so it is when the directory is opened again."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

import penstock
from penstock.hosts.durable import keeper
from penstock.storage.store import Sync
from tests.budget import examples
from tests.durable.disks import host_of, still

DECLARE = """
CREATE STREAM s0 (t BIGINT, k INT) TIMESTAMP BY t;
CREATE STREAM s1 (t BIGINT, k INT) TIMESTAMP BY t WITH (retain = 'all');
CREATE STREAM s2 (t BIGINT, k INT) TIMESTAMP BY t SLACK 3;
CREATE RELATION r (k INT, n INT);
"""
QUERIES = {
    "rows0": "SELECT ISTREAM t, k FROM s0 [ROWS 1]",
    "rows1": "SELECT ISTREAM t, k FROM s1 [ROWS 1]",
    "rows2": "SELECT ISTREAM t, k FROM s2 [ROWS 1]",
    "groups0": "SELECT k, count(*) AS n FROM s0 [ROWS 9] GROUP BY k",
    "groups2": "SELECT k, sum(t) AS n FROM s2 [RANGE 20] GROUP BY k",
}
COUNT = examples(90)
"""Pushes of each thread."""


def batch(stream: int, i: int) -> list[tuple[int, int]]:
    chance = random.Random(1000 * stream + i)
    return [(4 * i + (j if stream < 2 else (2, 0, 3, 1)[j]), chance.randrange(5)) for j in range(4)]


def rows(table: pa.Table) -> Counter[object]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def wanted() -> dict[str, Counter[object]]:
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARE)
        queries = {name: db.query(text, name=name) for name, text in QUERIES.items()}
        for stream in range(3):
            for i in range(COUNT):
                db.push(f"s{stream}", batch(stream, i))
        return {name: rows(query.fetch()) for name, query in queries.items()}


@pytest.mark.parametrize("sync", ["off", "group"])
def test_many_threads_on_one_directory(tmp_path: Path, sync: Sync) -> None:
    path = tmp_path / "db"
    found: dict[str, Counter[object]] = {name: Counter() for name in QUERIES}
    heard: Counter[object] = Counter()
    failures: list[BaseException] = []
    pushing = threading.Event()

    def run(work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)
                pushing.set()

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    with patch.object(keeper, "SECONDS", 0.02), penstock.connect(path, engine="local", sync=sync) as db:
        db.execute(DECLARE)
        queries = {name: db.query(text, name=name) for name, text in QUERIES.items()}
        queries["rows0"].subscribe(lambda table: heard.update(rows(table)))

        def push(stream: int) -> None:
            for i in range(COUNT):
                db.push(f"s{stream}", batch(stream, i))

        def change() -> None:
            for i in range(COUNT):
                db.execute(f"INSERT INTO r VALUES ({i % 5}, {i})")

        def read(name: str) -> None:
            while not pushing.is_set():
                found[name] += rows(queries[name].fetch(wait=False))

        def come_and_go() -> None:
            i = 0
            while not pushing.is_set():
                i += 1
                query = db.query("SELECT s1.k, r.n FROM s1 [ROWS 3], r WHERE s1.k = r.k", name=f"other{i}")
                db.execute(f"CREATE OR REPLACE VIEW v AS SELECT k FROM s0 [ROWS {i}]")
                query.fetch(wait=False)
                query.stop()

        def configure() -> None:
            chance = random.Random(7)
            while not pushing.is_set():
                db.configure(threading=chance.choice(["direct", "graph", "operator"]))
                pushing.wait(0.01)

        def save() -> None:
            while not pushing.is_set():
                host_of(db).save()
                db.note(saved=True)

        others = [run(lambda name=name: read(name)) for name in ("rows0", "rows2", "groups0")]  # type: ignore[misc]
        others += [run(work) for work in (come_and_go, configure, save)]
        pushers = [run(lambda stream=stream: push(stream)) for stream in range(3)] + [run(change)]  # type: ignore[misc]
        for thread in pushers:
            thread.join()
        pushing.set()
        for thread in others:
            thread.join()
        assert not failures, failures
        db.settle()
        copy = tmp_path / "killed"
        with still(db):
            shutil.copytree(path, copy)
    answers = wanted()
    assert heard == answers["rows0"]
    for where in (copy, path):
        with penstock.connect(where, engine="local") as db:
            assert db.note() == {"saved": True}
            assert sorted(db.queries) == sorted(QUERIES)
            for name, query in db.queries.items():
                assert found[name] + rows(query.fetch()) == answers[name], f"{name} of {where}"
            assert len(db.query("SELECT k, n FROM r").current()) == COUNT
