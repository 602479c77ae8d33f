"""Many threads at work on one database with a directory."""

from __future__ import annotations

import logging
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import penstock
from penstock.database.database import core_of
from penstock.hosts.durable import keeper
from penstock.hosts.local.host import LocalHost
from penstock.hosts.spark.parts.host import SparkHost

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
_SIZE = 4
"""Rows of a push."""


def batch(stream: int, i: int) -> list[tuple[int, int]]:
    chance = random.Random(1000 * stream + i)
    return [(4 * i + (j if stream < 2 else (2, 0, 3, 1)[j]), chance.randrange(5)) for j in range(_SIZE)]


def rows(table: pa.Table) -> Counter[object]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def wanted(count: int) -> dict[str, Counter[object]]:
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARE)
        queries = {name: db.query(text, name=name) for name, text in QUERIES.items()}
        for stream in range(3):
            for i in range(count):
                db.push(f"s{stream}", batch(stream, i))
        return {name: rows(query.fetch()) for name, query in queries.items()}


def work(root: Path, count: int, *, pause: float = 0.0, **options: Any) -> None:
    """Threads push, read, iterate, listen, register, suspend and stop queries, set how the work is done and save.

    Afterwards every row is in every answer once, and so it is when the directory, or what a kill would leave of it, is
    opened again. Nothing fails, and no warning is logged. ``count``: pushes of each thread; ``pause``: seconds between.
    """
    path, copy = root / "db", root / "killed"
    found: dict[str, Counter[object]] = {name: Counter() for name in QUERIES}
    heard, iterated = Counter[object](), Counter[object]()
    all_heard, over = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def run(work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)
                over.set()

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    with warnings() as said, patch.object(keeper, "SECONDS", 0.02), penstock.connect(path, **options) as db:
        db.execute(DECLARE)
        queries = {name: db.query(text, name=name) for name, text in QUERIES.items()}
        passing = db.query(QUERIES["rows1"], name="passing")

        def hear(table: pa.Table) -> None:
            heard.update(rows(table))
            if heard.total() >= _SIZE * count:
                all_heard.set()

        queries["rows0"].subscribe(hear)

        def push(stream: int) -> None:
            for i in range(count):
                db.push(f"s{stream}", batch(stream, i))
                if over.wait(pause):
                    break

        def change() -> None:
            for i in range(count):
                db.execute(f"INSERT INTO r VALUES ({i % 5}, {i})")
                if over.wait(pause):
                    break

        def read(name: str) -> None:
            while not over.is_set():
                found[name] += rows(queries[name].fetch(wait=False))
                over.wait(pause)

        def iterate() -> None:
            for table in passing:
                iterated.update(rows(table))

        def come_and_go() -> None:
            i = 0
            while not over.is_set():
                i += 1
                query = db.query("SELECT s1.k, r.n FROM s1 [ROWS 3], r WHERE s1.k = r.k", name=f"other{i}")
                query.subscribe(lambda table: None)
                db.execute(f"CREATE OR REPLACE VIEW v AS SELECT k FROM s0 [ROWS {i}]")
                query.fetch(wait=False)
                query.stop()
                over.wait(pause)

        def suspend() -> None:
            while not over.is_set():
                db.execute("SUSPEND QUERY groups2")
                over.wait(0.01 + 20 * pause)
                db.execute("RESUME QUERY groups2")
                over.wait(80 * pause)

        def configure() -> None:
            chance = random.Random(7)
            while not over.is_set():
                db.configure(threading=chance.choice(["direct", "graph", "operator"]), workers=chance.randint(1, 3))
                over.wait(0.01 + 100 * pause)  # Spark takes seconds to start what another part needs

        def save() -> None:
            while not over.is_set():
                core_of(db).host.abilities().save()
                db.note(saved=True)
                over.wait(pause)

        pushers = [run(lambda stream=stream: push(stream)) for stream in range(3)] + [run(change)]  # type: ignore[misc]
        others = [run(lambda name=name: read(name)) for name in ("rows0", "rows2", "groups0")]  # type: ignore[misc]
        others += [run(work) for work in (come_and_go, suspend, configure, save)]
        iterating = run(iterate)
        for thread in pushers:
            thread.join()
        over.set()
        for thread in others:
            thread.join()
        if not failures:
            db.settle()
        passing.stop()
        iterating.join()
        assert not failures, failures
        assert all_heard.wait(60), f"{heard.total()} rows were heard, of {_SIZE * count}"
        host = core_of(db).host.abilities()
        assert isinstance(host, LocalHost | SparkHost)
        assert host.kept is not None
        with host.kept.saver.still():
            shutil.copytree(path, copy)
    assert not said, said
    answers = wanted(count)
    assert heard == answers["rows0"]
    assert iterated == answers["rows1"]
    for where in (copy, path):
        with penstock.connect(where, **options) as db:
            assert db.note() == {"saved": True}
            assert sorted(db.queries) == sorted(QUERIES)
            for name, query in db.queries.items():
                assert found[name] + rows(query.fetch()) == answers[name], f"{name} of {where}"
            assert len(db.query("SELECT k, n FROM r").current()) == count


@contextmanager
def warnings() -> Iterator[list[str]]:
    """What is logged meanwhile that an operator of the system should see."""
    said: list[str] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(self.format(record))

    handler = Heard(logging.WARNING)
    logger = logging.getLogger("penstock")
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
