"""Real processes that are killed with SIGKILL again and again, at any moment, also while they save or open: every row
that was acknowledged is in the answers once. ``make kills`` kills 50 times, the ordinary run of the tests a few."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import penstock
from penstock.storage.store import Sync
from tests.durable.child import DECLARE, row

KILLS = int(os.environ.get("PENSTOCK_KILLS", "3"))
SEED = int(os.environ.get("PENSTOCK_SEED", "4"))
ROOT = Path(__file__).parents[2]


def killed(path: Path, count: int, sync: Sync, chance: random.Random, trace: Path) -> list[str]:
    """Let a process work and kill it; gives what it said."""
    with trace.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.durable.child", str(path), str(count), sync], cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
            stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
    assert process.stdout is not None
    said: list[str] = []
    try:
        if chance.random() < 0.2:  # while it opens, perhaps
            time.sleep(0.3 + 1.5 * chance.random())
        else:
            for _ in range(chance.randint(1, 60)):
                if not (line := process.stdout.readline()):
                    break
                said.append(line.strip())
            time.sleep(chance.choice([0, 0.001, 0.02]) * chance.random())
    finally:
        os.kill(process.pid, signal.SIGKILL)
        said += process.stdout.read().splitlines()  # it may have said more than was heard
        ended = process.wait()
    assert ended == -signal.SIGKILL, f"it ended by itself: {said[-3:]}\n{trace.read_text()[-4000:]}"
    return said


@pytest.mark.parametrize("sync", ["off", "group"])
def test_a_process_that_is_killed_again_and_again(tmp_path: Path, sync: Sync) -> None:
    chance = random.Random(SEED)
    path, count = tmp_path / "db", 1_000_000
    acknowledged, taken = -1, 0
    unheard = 0  # each process may have pushed one that it did not live to tell of
    for _ in range(max(1, KILLS // 2)):
        for line in killed(path, count, sync, chance, tmp_path / "errors"):
            if line.isdigit():
                assert acknowledged < int(line) <= acknowledged + 1 + unheard
                acknowledged, unheard = int(line), 0
            elif line.startswith("taken"):
                taken = int(line.split()[1])
        unheard += 1
    with penstock.connect(path, engine="local") as db:
        if not db.queries:
            assert acknowledged == -1
            return
        given = db.stream("s").given
        assert acknowledged < given <= acknowledged + 1 + unheard
        length = db.note().get("length", 0)
        text = path.with_suffix(".csv").read_bytes()[:length].decode() if length else ""
        found = [tuple(map(int, line.split(","))) for line in text.splitlines()]
        assert len(found) >= taken
        left = db.queries["every"].fetch()
        found += zip(left.column("t").to_pylist(), left.column("k").to_pylist(), strict=True)
        assert found == [row(i) for i in range(given)]
        sums = db.queries["sums"].fetch().to_pylist()
    with penstock.connect(engine="reference") as db:
        db.execute(DECLARE)
        db.push("s", [row(i) for i in range(given)])
        wanted = db.queries["sums"].fetch().to_pylist()
    assert Counter(tuple(r.values()) for r in sums) == Counter(tuple(r.values()) for r in wanted)
