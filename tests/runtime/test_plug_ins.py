"""Plug-in points: what the package has by itself, and how another way is added by name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.runtime.lanes import LANES, Levels
from penstock.runtime.owners import ARCHITECTURES, Cell, Workers
from penstock.runtime.placement import PLACEMENTS, Placement, PlacementGraph
from penstock.runtime.station import Partition, Station
from penstock.runtime.strategies import STRATEGIES, Fifo

ALONE = """
import penstock
from penstock.graph.masters import MASTERS
from penstock.runtime.buffer import BUFFERS
from penstock.runtime.lanes import LANES
from penstock.runtime.owners import ARCHITECTURES
from penstock.runtime.placement import PLACEMENTS
from penstock.runtime.station import Partition, Station
from penstock.runtime.strategies import STRATEGIES
for names in STRATEGIES, LANES, PLACEMENTS, ARCHITECTURES, BUFFERS, MASTERS:
    print(*names)
"""


def test_by_itself_the_package_has_what_users_need(tmp_path: Path) -> None:
    source = str(Path(penstock.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "fifo chain-flush weighted-round-robin highest-priority",
        "strong direct normal",
        "stall-avoiding",
        "worker",
        "lock-free",
        "smart",
    ]


class Counted(Fifo):
    """Counts how often it was asked."""

    asked = 0

    def choose(self, now: float) -> Station | None:
        Counted.asked += 1
        return super().choose(now)


class Several(Workers):
    """Counts how often cells were assigned, and stopped."""

    assigned = stopped = 0

    def assign(self, cells: Sequence[Cell], partitions: Mapping[int, Partition], stations: Sequence[Station]) -> None:
        Several.assigned += 1
        super().assign(cells, partitions, stations)

    def stop(self) -> None:
        Several.stopped += 1
        super().stop()


def one_by_one(graph: PlacementGraph) -> Placement:
    """Every operator by itself."""
    return {node.id: i for i, node in enumerate(graph.nodes)}


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "counted", Counted)
    monkeypatch.setitem(PLACEMENTS, "one by one", one_by_one)
    monkeypatch.setitem(ARCHITECTURES, "several", Several)
    monkeypatch.setitem(LANES, "other", Levels)
    Counted.asked = Several.assigned = Several.stopped = 0


@pytest.mark.usefixtures("added")
def test_what_is_added_is_set_by_its_name() -> None:
    with penstock.connect(engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT, p BIGINT) TIMESTAMP BY t PRIORITY BY p")
        query = db.query("SELECT sum(v) AS n FROM s [ROWS 3]")
        wanted = db.query("SELECT ISTREAM v FROM s")
        ways = {"architecture": "several", "placement": "one by one"}
        db.configure(threading="hybrid", strategy="counted+", mode="other", experiments=ways)
        for i in range(20):
            db.push("s", [(i, i, i % 2)])
        assert query.fetch().num_rows == 39
        assert sorted(wanted.fetch()["v"].to_pylist()) == list(range(20))
        partitions = [p for p in db.graph().partitions if p.worker is not None]
        assert all(len(p.operators) == 1 for p in partitions)
        assert {p.strategy for p in partitions} == {"counted+"}
        assert Counted.asked
        assert Several.assigned
        before = Several.stopped
        db.configure(experiments={"architecture": "worker"})
        assert (before, Several.stopped) == (0, 1)
        db.push("s", [(20, 20, 0)])
        assert wanted.fetch()["v"].to_pylist() == [20]


def test_what_is_not_added_is_not_there() -> None:
    with penstock.connect(engine="local") as db:
        unknown: list[dict[str, Any]] = [
            {"strategy": "counted"}, {"mode": "other"}, {"experiments": {"architecture": "several"}},
        ]  # fmt: skip
        for settings in unknown:
            with pytest.raises(penstock.InputError) as wrong:
                db.configure(**settings)
            assert wrong.value.hint
