"""Penstock sent to workers that lack it; without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.hosts.spark.ship import NEEDED, check, looking, packed
from penstock.model.errors import EngineError

USE = """
import penstock, penstock.kernels.join
from penstock.plan.nodes import Field
print(penstock.__file__)
print(penstock.kernels.join.__file__)
with penstock.connect(engine="local") as db:
    db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t")
    q = db.query("SELECT v FROM s")
    db.push("s", [(1, 7)])
    print(q.fetch().column("v").to_pylist())
"""


def test_what_is_sent_is_unpacked_once_and_used(tmp_path: Path) -> None:
    package = packed(tmp_path / "penstock.zip", "d1")
    environment = {**os.environ, "PYTHONPATH": str(package), "TMPDIR": str(tmp_path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", USE], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(2)
    ]
    home = tmp_path / f"penstock-{os.getuid()}" / "d1"
    assert said[0] == said[1] == [str(home / "__init__.py"), str(home / "kernels" / "join.py"), "[7]"]
    here = Path(penstock.__file__).parent
    for name in ("catalog.py", "kernels/join.py"):
        assert (home / name).read_bytes() == (here / name).read_bytes()
        assert (home / name).stat().st_mtime == (here / name).stat().st_mtime
    assert [p.name for p in home.parent.iterdir()] == ["d1"]


def test_what_workers_lack_is_named() -> None:
    ((_, lacks, digest),) = looking((*NEEDED, "no_such_module"))(())
    assert lacks == ("no_such_module",)
    assert len(digest) == 64
    check([("here", (), digest)])
    with pytest.raises(EngineError) as caught:
        check([("here", (), digest), ("there", ("numba", "sqlglot"), "")])
    assert str(caught.value) == (
        "the workers on there lack numba, sqlglot; install it there (pip install numba sqlglot), or send an "
        "environment with spark.archives"
    )
