"""A long mixed load on the local engine: memory, threads, open files and the directory must stop growing.

    python -m benchmarks.soak [--quick] [--scale X] [--minutes M] [--only PART …] [--place PLACE …] [--folder DIR]

Two processes follow each other, each for half of the minutes: a database with a directory, and one without. Every
round pushes batches, single rows, rows out of order and late ones, and rows of a stream that retains some; changes a
relation by key; adds queries of many shapes and stops older ones, most without a fetch. Every few rounds it declares a
function or a view anew, declares and drops a stream, switches the threading, or saves the state.

Some fifty times a process notes its resident memory, Python objects, Arrow's pool, threads, open files, and files and
bytes of each kind in the directory. A ratio compares the last fifth of the time with the first half (memory: with the
time around 40 %); 1 means that nothing grew. At last everything is stopped and dropped, the state is saved, and what is
left is reported.

``--only`` leaves all other parts of the load out, to see which of them something grows with.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock
from benchmarks.support.places import ROOT, python_path
from benchmarks.support.report import Report, options, progress
from penstock.database.database import core_of

KINDS = ("streams", "relations", "deliveries", "catalog", "epochs", "functions", "state")
PLACES = ("directory", "memory")
SAMPLES = 50
_BATCH, _SINGLE, _SLACK, _KEYS, _LATE = 1_000, 10, 1_000, 200, 1_000
_ALIVE = 12
"""Queries of changing shapes that run at the same time."""
_MOST_LEFT = 1 << 20
"""Bytes that a directory may take in which everything has been dropped."""
_DECLARE = f"""
CREATE STREAM s (t BIGINT, k BIGINT, v DOUBLE, w STRING) TIMESTAMP BY t;
CREATE STREAM slack (t BIGINT, k BIGINT, v DOUBLE, w STRING) TIMESTAMP BY t SLACK {_SLACK};
CREATE STREAM kept (t BIGINT, k BIGINT, v DOUBLE, w STRING) TIMESTAMP BY t WITH (retain = 10000);
CREATE STREAM apart (t BIGINT, k BIGINT) TIMESTAMP BY t WITH (on_error = 'apart');
CREATE RELATION r (k BIGINT, name STRING, v DOUBLE) KEY (k);
CREATE QUERY fetched AS SELECT ISTREAM k, avg(v) AS a FROM s [ROWS 1000] WHERE v > 0.9 GROUP BY k;
CREATE QUERY unread AS SELECT ISTREAM k, v FROM s [NOW] WHERE v > 0.5 WITH (results = '20000 rows');
CREATE QUERY standing AS SELECT k, count(*) AS n FROM s [RANGE 10000] GROUP BY k WITH (results = '4 MB');
CREATE QUERY tidied AS SELECT ISTREAM t, k FROM slack [NOW] WHERE v > 0.99 WITH (results = '1 MB');
CREATE QUERY recent AS SELECT k, max(v) AS m FROM kept [RANGE 10000] GROUP BY k WITH (results = '1 MB');
CREATE QUERY known AS SELECT ISTREAM s.t AS t, r.name AS name FROM s [NOW], r WHERE s.v > 0.9 AND s.k = r.k
  WITH (results = '1 MB');
"""
_SHAPES = (
    "SELECT ISTREAM k, v FROM s [NOW] WHERE v > {x} AND k <> {n}",
    "SELECT k, sum(v) AS a, count(*) AS n FROM s [RANGE {m}] WHERE k < {n} GROUP BY k",
    "SELECT avg(v) AS a FROM s [ROWS {m}] WHERE v < {x}",
    "SELECT k, max(v) AS a FROM kept [TUMBLING {m}] GROUP BY k HAVING count(*) > {n}",
    "SELECT ISTREAM s.t AS t, kept.v AS v FROM s [ROWS {n}] AS s, kept [RANGE {m}] AS kept WHERE s.k = kept.k",
    "SELECT ISTREAM s.t AS t, r.name AS name FROM s [NOW] AS s, r WHERE s.k = r.k AND r.v > {x} AND s.v > 0.9",
    "SELECT DISTINCT k FROM slack [RANGE {m}] WHERE v > {x}",
    "SELECT ISTREAM upper(w) AS u, f(k) AS y FROM slack [NOW] WHERE w LIKE '%{n}%'",
    "SELECT k, min(v) AS low, max(v) AS high FROM s [TUMBLING {m}] WHERE w = 'w{n}' GROUP BY k",
    "SELECT ISTREAM g(k) AS y, CASE WHEN v > {x} THEN 'a{n}' ELSE 'b' END AS z FROM kept [NOW] WHERE v > 0.8",
    "SELECT k, v FROM s [ROWS {n}] WHERE v > 0.9 AND k IN (SELECT k FROM r WHERE v > {x})",
)  # fmt: skip


# -- what is measured -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """What a process has at one moment."""

    at: float
    """Which part of the time is over, 0 to 1."""
    rss: float
    """Resident memory in MB."""
    objects: int
    blocks: int
    """Blocks that Python's allocator has given out: objects that the garbage collector does not know included."""
    arrow: float
    """MB that Arrow's pool has given out."""
    threads: int
    files: int
    """Files that are open."""
    bytes: dict[str, int] = field(default_factory=dict)
    """Of each kind in the directory."""
    names: dict[str, int] = field(default_factory=dict)
    """Files of each kind in the directory."""


def rss() -> float:
    """Resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def sample(at: float, folder: Path | None) -> Sample:
    """All of it now. Memory is looked at first: what the collector then finds stays counted."""
    resident = rss()
    gc.collect()
    gc.freeze()  # counts objects; ``gc.get_objects`` would break tuples that other threads are making
    objects = gc.get_freeze_count()
    gc.unfreeze()
    bytes, names = sizes(folder)
    return Sample(
        round(at, 4), round(resident, 1), objects, sys.getallocatedblocks(),
        round(pa.total_allocated_bytes() / 1e6, 1), threading.active_count(), len(os.listdir("/proc/self/fd")),
        bytes, names,
    )  # fmt: skip


def sizes(folder: Path | None) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes and files of each kind below the folder of a database."""
    bytes: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
    names: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
    if folder is None:
        return {}, {}
    for kind in KINDS:
        for where, _, found in os.walk(folder / kind):
            for name in found:
                try:
                    bytes[kind] += os.stat(os.path.join(where, name)).st_size
                    names[kind] += 1
                except FileNotFoundError:
                    pass  # the saver has just removed it
    return dict(bytes), dict(names)


# -- the load ---------------------------------------------------------------------------------------------


def _plus(by: int, k: int) -> int:
    return k + by


class Load:
    """One database under all parts of the load, each a method that does its share of a round."""

    def __init__(self, db: penstock.Database, seed: int = 1) -> None:
        self.db = db
        self.random = random.Random(seed)
        self.numpy = np.random.default_rng(seed)
        self.clocks: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.alive: deque[penstock.Query] = deque()
        self.numbers = itertools.count()
        self.rounds = 0
        self.words = pa.array([f"w{i}" for i in range(1_000)])
        self.threading = itertools.cycle(["graph", "hybrid", "operator", "direct"])
        self._define()
        db.execute(_DECLARE)
        self.parts: dict[str, tuple[Callable[[], object], int]] = {
            "batches": (self.batches, 1), "single": (self.single, 1), "slack": (self.slack, 1),
            "retain": (self.retain, 1), "apart": (self.apart, 5), "relation": (self.relation, 1),
            "queries": (self.queries, 1), "functions": (self._define, 7), "views": (self.views, 9),
            "streams": (self.streams, 11), "fetch": (self.fetch, 3), "threading": (self.switch, 23),
            "save": (self.save, 40),
        }  # fmt: skip

    def round(self, chosen: Sequence[str]) -> None:
        """Every part whose turn it is."""
        self.rounds += 1
        for name in chosen:
            part, every = self.parts[name]
            if self.rounds % every == 0:
                part()
                self.counts[name] += 1

    def rows(self, stream: str, count: int, disorder: int = 0) -> pa.Table:
        """The next rows of a stream; ``disorder``: how far their times are apart from their order."""
        start = self.clocks[stream]
        self.clocks[stream] = start + count
        times = np.arange(start, start + count)
        if disorder:
            times = np.maximum(times - self.numpy.integers(0, disorder, count), 0)
        self.counts["rows"] += count
        random = self.numpy
        return pa.table({
            "t": times, "k": random.integers(0, 100, count), "v": random.random(count),
            "w": self.words.take(pa.array(random.integers(0, 1_000, count))),
        })  # fmt: skip

    def batches(self) -> None:
        self.db.push("s", self.rows("s", _BATCH))

    def single(self) -> None:
        for _ in range(_SINGLE):
            at = self.clocks["s"]
            self.clocks["s"] += 1
            self.counts["rows"] += 1
            self.db.push("s", [(at, at % 100, 0.95, "one")], key=(f"till {at % 7}", at))

    def slack(self) -> None:
        self.db.push("slack", self.rows("slack", _BATCH, _SLACK))
        if self.clocks["slack"] > 20 * _SLACK:
            late = [(self.random.randrange(self.clocks["slack"] - 10 * _SLACK), 1, 0.5, "late") for _ in range(_LATE)]
            self.db.push("slack", late)

    def retain(self) -> None:
        self.db.push("kept", self.rows("kept", _BATCH))

    def apart(self) -> None:
        at = self.clocks["apart"]
        self.clocks["apart"] += 200
        self.db.push("apart", [(at + i, i if i % 2 else "no number") for i in range(200)])

    def relation(self) -> None:
        key = self.random.randrange(_KEYS)
        self.db.push("r", [(key + _KEYS * self.rounds, f"name {self.rounds}", 0.5)])
        self.db.execute(f"UPDATE r SET v = {self.random.random()} WHERE k = {key + _KEYS * self.rounds}")
        for _ in range(3):
            key = self.random.randrange(_KEYS)
            self.db.execute(f"DELETE FROM r WHERE k = {key}")
            self.db.execute(f"INSERT INTO r VALUES ({key}, 'n{self.rounds}', {self.random.random()})")
        self.db.execute(f"DELETE FROM r WHERE k >= {_KEYS}")

    def queries(self) -> None:
        for _ in range(2):
            shape = self.random.choice(_SHAPES)
            text = shape.format(
                x=round(self.random.random(), 6), n=self.random.randrange(2, 100), m=self.random.randrange(100, 3_000)
            )
            if self.random.random() < 0.5:
                name = f"n{next(self.numbers)}"
                self.db.execute(f"CREATE QUERY {name} AS {text} WITH (results = '100 kB')")
                self.alive.append(self.db.queries[name])
            else:
                self.alive.append(self.db.query(text))
        while len(self.alive) > _ALIVE:
            query = self.alive.popleft()
            if self.random.random() < 0.3:
                with contextlib.suppress(penstock.ResultsGone):
                    query.fetch()
            query.stop()

    def _define(self) -> None:
        self.db.create_function("f", partial(_plus, self.rounds), args=["BIGINT"], returns="BIGINT")
        self.db.create_function("g", partial(_plus, 2), args=["BIGINT"], returns="BIGINT")

    def views(self) -> None:
        self.db.execute(f"CREATE OR REPLACE VIEW seen AS SELECT k FROM s [ROWS {self.random.randrange(9, 999)}]")

    def streams(self) -> None:
        self.db.execute("CREATE STREAM passing (t BIGINT, k BIGINT) TIMESTAMP BY t")
        self.db.push("passing", [(i, i) for i in range(100)])
        self.db.execute("DROP STREAM passing")

    def fetch(self) -> None:
        fetched = self.db.queries["fetched"]
        fetched.transfer(lambda table: {"taken": table.num_rows})
        self.db.queries["standing"].current()
        fetched.subscribe(lambda table: None).cancel()
        self.db.note(rounds=self.rounds)

    def switch(self) -> None:
        self.db.configure(threading=next(self.threading))

    def save(self) -> None:
        core_of(self.db).host.abilities().save()

    def stop(self) -> None:
        """Stop every query, drop what is declared, and save what is left."""
        self.alive.clear()
        for query in list(self.db.queries.values()):
            query.stop()
        del query
        self.db.configure(threading="direct")
        self.db.execute("DROP VIEW IF EXISTS seen")
        for name in ("s", "slack", "kept", "apart"):
            self.db.execute(f"DROP STREAM {name}")
        self.db.execute("DROP RELATION r")
        for _ in range(2):  # the older of two saved states goes with the second
            self.db.note(over=True)
            self.save()


def load(folder: Path | None, seconds: float, only: Sequence[str] | None) -> Iterator[Sample]:
    """The samples of one database, the last of them after everything was stopped."""
    with penstock.connect(folder, engine="local", functions=folder is not None) as db:
        under = Load(db)
        chosen = [name for name in under.parts if only is None or name in only]
        begin = time.monotonic()
        wanted = 0.0
        while (over := (time.monotonic() - begin) / seconds) < 1:
            under.round(chosen)
            if over >= wanted:
                wanted += 1 / SAMPLES
                yield sample(over, folder)
        yield sample(1, folder)
        print(json.dumps({"counts": {**under.counts, "queries": 2 * under.counts["queries"]}}), flush=True)
        under.stop()
        yield sample(2, folder)


def child(args: argparse.Namespace) -> None:
    """The process of one database: a line for each sample."""
    folder = args.child / "db" if args.place == ["directory"] else None
    for found in load(folder, 60 * args.minutes, args.only):
        print(json.dumps(asdict(found)), flush=True)


# -- the report -------------------------------------------------------------------------------------------


def measured(place: str, minutes: float, args: argparse.Namespace) -> tuple[list[Sample], dict[str, int]]:
    """Run the process of one database."""
    samples: list[Sample] = []
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        command = [sys.executable, "-m", "benchmarks.soak", "--child", name, "--place", place]
        command += ["--minutes", str(minutes), *(["--only", *args.only] if args.only else [])]
        environment = {**os.environ, "PYTHONPATH": python_path(ROOT)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            for line in process.stdout:
                found = json.loads(line)
                if "counts" in found:
                    counts = found["counts"]
                    continue
                samples.append(Sample(**found))
                said = samples[-1]
                progress(f"{place}: {said.at:.0%}, {said.rss:.0f} MB, {said.objects:,} objects")
                if args.curve:
                    print(json.dumps({"place": place, **found}), file=sys.stderr, flush=True)
        if process.returncode:
            raise SystemExit(f"the load with a database in {place} ended with {process.returncode}")
    return samples, counts


def ratio(samples: Sequence[Sample], of: Callable[[Sample], float], since: float = 0.1) -> float:
    """The greatest value of the last fifth of the time, against that of the first half, from ``since`` on. What follows
    the threading and the saves goes up and down, so all of that half counts."""
    before = max(of(s) for s in samples if since <= s.at <= 0.5)
    after = max(of(s) for s in samples if 0.8 <= s.at <= 1)
    return after / before if before else float(after > 0) + 1


def _of_kind(kind: str, sample: Sample) -> float:
    return sample.bytes[kind]


def _files_of_kind(kind: str, sample: Sample) -> float:
    return sample.names[kind]


def told(report: Report, place: str, samples: Sequence[Sample], counts: dict[str, int]) -> None:
    """All results of one database."""
    *during, left = samples
    done = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    report.add(f"{place}: memory at the end, MB", during[-1].rss, note=done)
    report.add(f"{place}: growth of memory", ratio(during, lambda s: s.rss, 0.3), 1.1, below=True)
    report.add(f"{place}: growth of Python objects", ratio(during, lambda s: s.objects), 1.1, below=True)
    report.add(f"{place}: growth of Python's blocks", ratio(during, lambda s: s.blocks), 1.1, below=True)
    report.add(f"{place}: Arrow's pool at the end, MB", during[-1].arrow)
    report.add(f"{place}: growth of threads", ratio(during, lambda s: s.threads), 1.5, below=True)
    report.add(f"{place}: growth of open files", ratio(during, lambda s: s.files), 1.5, below=True)
    for kind in during[-1].bytes:
        bar = 1.0 if kind == "epochs" else 1.5
        report.add(f"{place}: growth of {kind}, bytes", ratio(during, partial(_of_kind, kind)), bar, below=True)
        report.add(f"{place}: growth of {kind}, files", ratio(during, partial(_files_of_kind, kind)), bar, below=True)
    report.add(f"{place}: after stopping all, memory, MB", left.rss)
    report.add(f"{place}: after stopping all, against before", left.rss / during[-1].rss, 1, below=True)
    report.add(f"{place}: after stopping all, Python objects", left.objects)
    report.add(f"{place}: after stopping all, Arrow's pool, MB", left.arrow, 1, below=True)
    if left.bytes:
        report.add(f"{place}: after dropping all, bytes", sum(left.bytes.values()), _MOST_LEFT, below=True)
        kinds = ", ".join(f"{count} {kind}" for kind, count in left.names.items() if count)
        report.add(f"{place}: after dropping all, files", sum(left.names.values()), 20, below=True, note=kinds)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for both databases together (default: 10)")
    parser.add_argument("--only", nargs="+", help="parts of the load; by default all of them")
    parser.add_argument("--place", nargs="+", choices=PLACES, default=list(PLACES))
    parser.add_argument("--folder", type=Path, help="where directories are made; by default the system's for files")
    parser.add_argument("--curve", action="store_true", help="every sample on standard error, as lines of JSON")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args: Any = parser.parse_args()
    if args.child is not None:
        child(args)
        return
    report = Report("soak")
    minutes = 0.5 if args.quick else args.minutes * args.scale
    for place in args.place:
        told(report, place, *measured(place, minutes / len(args.place), args))
    report.finish()


if __name__ == "__main__":
    main()
