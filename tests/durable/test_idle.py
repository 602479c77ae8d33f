"""A database to which nothing comes costs nothing: no writes, and next to no processor time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.durable.idle import WAYS


def test_an_idle_database_writes_nothing_and_only_waits(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "tests.durable.idle", str(tmp_path), "1.5"], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout.splitlines()[-1])
    assert found["saved"]
    assert found["written"] == []
    assert found["threads"] > 2 * len(WAYS)  # savers and workers are there
    assert found["share"] < 0.1  # of a core, for four databases
