"""A database on a cluster, and on a file system of its own that is full for a while.

    unshare -Urm python -m tests.spark.full_live ROOT

Prints what its queries answered. It fails if nothing was refused, or if a query does not go on.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import penstock
from tests.spark.standalone import SETTINGS, standalone
from tests.spark.test_full import DECLARE, QUERIES, rows


def main(root: Path) -> None:
    home = root / "disk"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(home)], check=True)
    with (
        standalone(root / "cluster") as cluster,
        penstock.connect(home / "db", engine="spark", master=cluster.master, spark=SETTINGS, trigger=0) as db,
    ):
        db.execute(DECLARE)
        for name, text in QUERIES.items():
            db.query(text, name=name)
        for i in range(3):
            db.push("s", rows(i))
        db.settle()
        for i in range(3, 9):
            db.push("s", rows(i))
            if i == 5:
                (home / "ballast").write_bytes(bytes(shutil.disk_usage(home).free - 40_000))
                refused = 0
                for _ in range(3):  # room for rows, none for what they give
                    try:
                        db.settle()
                    except penstock.PenstockError as error:
                        print(error, flush=True)
                        refused += 1
                assert refused == 3
                (home / "ballast").unlink()
        found = [sorted(map(repr, query.fetch().to_pylist())) for query in db.queries.values()]
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
