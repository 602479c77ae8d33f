"""The demo from beginning to end, with a clock that nobody has to wait for."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import nullcontext
from functools import partial

import pyarrow as pa
import pytest

import penstock
from penstock.demo.clock import SimulatedClock
from penstock.demo.run import PROFILES, Run
from penstock.demo.scenario import Scenario
from penstock.demo.snapshot import Snapshot
from tests.spark.direct import directly

SMALL = Scenario(readings=8, burst=160, alarms=3, chunk=40)


def played(engine: str, seconds: float = 2.0) -> tuple[dict[str, Counter[str]], list[Snapshot]]:
    """All answers of each query, whatever their order, and the snapshots that were shown."""
    profile = PROFILES[engine]
    heard: dict[str, Counter[str]] = {}
    shown: list[Snapshot] = []
    settings = {**profile.connect, "batch_rows": 50} if engine == "spark" else profile.connect
    with directly() if engine == "spark" else nullcontext(), penstock.connect(engine=engine, **settings) as db:
        run = Run(db, SMALL, seconds, SimulatedClock())
        for name, query in db.queries.items():
            heard[name] = Counter()
            query.subscribe(partial(_count, heard[name]))
        if profile.configure:
            db.configure(**profile.configure)
        run.warm_up()
        run.play(shown.append)
    return heard, shown


def _count(heard: Counter[str], answers: pa.Table) -> None:
    heard.update(map(str, answers.to_pylist()))


def test_all_engines_give_the_same_answers() -> None:
    expected, _ = played("reference")
    assert all(expected.values())
    for engine in ("local", "spark"):
        assert played(engine)[0] == expected, engine


@pytest.fixture(scope="module")
def shown() -> list[Snapshot]:
    return played("local", 4.0)[1]


def test_the_last_snapshot_has_everything(shown: list[Snapshot]) -> None:
    last = shown[-1]
    assert last.waiting == 0
    assert last.graph is not None
    assert len(last.graph.queries) == len(last.queries) == 6
    for query in last.queries:
        assert query.answers
        assert query.rows
        assert query.memory
        assert query.latest
        assert query.p50 is not None
        assert query.p99 is not None
    assert last.burst is not None
    assert last.burst.done
    assert (last.burst.rows, last.burst.alarms) == (160, 3)
    calls = last.queries[-1]
    assert calls.name == "service_calls"
    assert calls.latest[-1].startswith("T")
    rows = {query.name: query.rows for query in last.queries}
    # Forty slices of eight readings each; four of them are held back, and a burst comes instead.
    assert rows["turbine_power"] == 36 * 8 + 160
    assert rows["own_power"] == rows["turbine_power"] + 40


def test_what_happens_is_told_in_order(shown: list[Snapshot]) -> None:
    told = [re.split("[:,]", event.text)[0] for event in shown[-1].events]
    assert told[1:] == ["the line to the turbines is down", "burst", "all calls for the burst are answered"]
    times = [event.seconds for event in shown[-1].events]
    assert times == sorted(times)
    assert times[-1] <= shown[-1].seconds


def test_it_is_shown_several_times_a_second_and_grows(shown: list[Snapshot]) -> None:
    assert 16 <= len(shown) <= 44
    rows = [snapshot.rows for snapshot in shown]
    assert rows == sorted(rows)


class Slow(SimulatedClock):
    """Whatever is done takes time: each look at the clock costs a little."""

    def now(self) -> float:
        self.sleep(0.03)
        return super().now()


def test_on_a_machine_that_cannot_keep_pace_it_ends_nevertheless() -> None:
    shown: list[Snapshot] = []
    with penstock.connect(engine="local") as db:
        run = Run(db, SMALL, 600.0, Slow())
        run.warm_up()
        run.play(shown.append)
    assert "too busy" in shown[-1].events[-1].text
    assert shown[-1].burst is None
    assert shown[-1].seconds < 60
