"""Compiled kernels are kept on disk; the first use on a machine compiles them, which takes some seconds.

``python -m penstock.cli.warm`` does that ahead of time.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from typing import TextIO

from penstock import kernels
from penstock.connecting import connect

_STREAMS = """
CREATE STREAM s (t BIGINT, k BIGINT, g STRING, v DOUBLE) TIMESTAMP BY t PRIORITY BY v > 4;
CREATE STREAM r (t BIGINT, k BIGINT, g STRING, w DOUBLE) TIMESTAMP BY t
"""
# Between them these use every kernel.
_QUERIES = (
    "SELECT k, g, count(*), sum(v), sum(k), avg(v), min(v), max(k) FROM s [RANGE 2] GROUP BY k, g",
    "SELECT ISTREAM g, avg(v) FROM s [ROWS 2] GROUP BY g MASTER s",
    "SELECT g, count(*) FROM s [HOPPING 2 EVERY 1] GROUP BY g",
    "SELECT v FROM s [PARTITION BY g ROWS 1]",
    "SELECT ISTREAM v, w FROM s [RANGE 2], r [RANGE 2] WHERE s.k = r.k AND v < w",
    "SELECT v, w FROM s [ROWS 2], r [ROWS 2] WHERE s.g = r.g AND s.k = r.k",
    "SELECT ISTREAM v, w FROM s [ROWS 2], r [ROWS 2] WHERE v < w",
    "SELECT RSTREAM v, w FROM s [PARTITION BY g ROWS 1], r [NOW] WHERE s.g = r.g MASTER r",
    "SELECT ISTREAM v, r.g FROM s [NOW], r [RANGE 9] WHERE s.k = r.k",
)


def is_cold() -> bool:
    """Whether kernels have not been compiled here, as far as the usual place for them tells."""
    return not any(Path(kernels.__file__).with_name("__pycache__").glob("*.nbi"))


def announce(stream: TextIO) -> None:
    """Tell somebody at a terminal why the first answer takes its time."""
    if stream.isatty() and is_cold():
        print("penstock: compiling kernels for this machine, once; this takes some seconds", file=stream, flush=True)


def warm() -> float:
    """Compile what is not compiled yet; gives the seconds it took."""
    start = time.perf_counter()
    importlib.import_module("penstock.kernels.literals")
    with connect(engine="local") as db:
        db.execute(_STREAMS)
        queries = [db.query(text) for text in _QUERIES]
        rows = [(i, i % 2, "ab"[i % 2], float(i)) for i in range(6)]
        for name in ("s", "r"):
            db.push(name, rows)
        db.configure(threading="graph")  # now rows wait, and those with a priority overtake
        for first in range(6, 600, 99):
            for name in ("r", "s"):
                db.push(name, [(first + i, *row) for i, (_, *row) in enumerate(rows * 16)])
        for query in queries:
            query.fetch()
    return time.perf_counter() - start


if __name__ == "__main__":
    print(f"kernels compiled in {warm():.1f} s", file=sys.stderr)
