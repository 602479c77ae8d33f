"""A server that is killed under load, with clients of all protocols that go on; ``python -m benchmarks.server --only
kills`` kills it 20 times."""

from __future__ import annotations

import os
import random
from pathlib import Path

from benchmarks.support import kills

SEED = int(os.environ.get("PENSTOCK_SEED", "4"))


def test_a_killed_server_loses_and_doubles_nothing(tmp_path: Path) -> None:
    found = kills.load(tmp_path, "local", 1, random.Random(SEED), say=lambda text: None)
    assert found.wrong == []
    assert found.kills > 0
    assert found.cuts > 0
    assert found.rows > 0
