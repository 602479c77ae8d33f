"""``penstock run --database`` on Spark over files that grow: a program that is killed or stopped and started again.

    python -m tests.spark.killed_run ROOT run FILE.cql …

It pushes few rows at a time, so that there are many moments; SIGUSR1 makes it print the stacks of all its threads.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import penstock
from penstock.cli.main import main
from penstock.database.database import core_of
from penstock.database.play import play
from penstock.io.writers import CsvText

SIZE = 200
"""Rows by which each file grows between two starts."""
DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t SLACK 5;
CREATE STREAM r (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t;
CREATE RELATION names (k BIGINT, name STRING) KEY (k);
CREATE QUERY joined AS SELECT a.k, a.v AS x, b.v AS y FROM s [RANGE 40] a LEFT JOIN r [RANGE 30] b ON a.k = b.k;
CREATE QUERY last AS SELECT ISTREAM k, count(*) AS n, max(v) AS most FROM s [ROWS 7] GROUP BY k;
CREATE QUERY named AS SELECT ISTREAM name, s.v FROM s [NOW], names WHERE s.k = names.k;
CREATE QUERY hops AS SELECT k, sum(v) AS total FROM r [HOPPING 50 EVERY 20] GROUP BY k;
"""
_HEAD = "t,k,v\n"
INPUTS = ("s", "r", "names")
COMMAND = [
    "run", "q.cql", "--output", "out", "--database", "db", "--engine", "spark", "--master", "local[2,4]",
    *(f"--input={name}={name}.csv" for name in INPUTS),
]  # fmt: skip


def begin(root: Path) -> None:
    """The script, a relation, and streams without rows."""
    (root / "q.cql").write_text(DECLARE)
    (root / "names.csv").write_text("k,name\n0,zero\n1,one\n2,two\n")
    for name in ("s", "r"):
        (root / f"{name}.csv").write_text(_HEAD)


def grow(root: Path, times: int, *, missing: int = 0) -> None:
    """Let the files of both streams have grown ``times`` times, but for the last characters, which come later."""
    for name in ("s", "r"):
        text = "".join(line for i in range(times) for line in _lines(name, i))
        path = root / f"{name}.csv"
        with path.open("a") as file:
            file.write((_HEAD + text)[path.stat().st_size : len(_HEAD + text) - missing])


def _lines(name: str, i: int) -> list[str]:
    """Rows of a file; those of s are out of order now and then, and some are late."""
    chosen = random.Random(f"{name} {i}")
    back = 0 if name == "r" else 7
    times = [3 * (SIZE * i + j) - chosen.randint(0, back) for j in range(SIZE)]
    return [f"{t},{chosen.randrange(5)},{chosen.randrange(100)}\n" for t in times]


def check(root: Path) -> None:
    """The files have every answer once, as the reference gives it."""
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARE)
        play(core_of(db), {name: root / f"{name}.csv" for name in INPUTS})
        for name, query in db.queries.items():
            text = CsvText(query.schema)
            wanted = Counter((text.head() + text.body(query.fetch())).splitlines())
            found = Counter((root / "out" / f"{name}.csv").read_text().splitlines())
            assert found == wanted, (name, list((found - wanted).items())[:3], list((wanted - found).items())[:3])


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with patch("penstock.cli.run._CHUNK", 40):
        os.chdir(sys.argv[1])
        sys.exit(main(sys.argv[2:]))
