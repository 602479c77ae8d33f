"""A process that is behind takes in what has changed, and is then as one that has loaded everything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.graph.programs import Program
from penstock.hosts.reference import ReferenceHost
from penstock.model.delta import Arrivals, Delta
from penstock.storage.versions import StateStore, fingerprint
from tests.budget import SHARE, examples, paired
from tests.generated.language import Case, cases
from tests.generated.regressions import REGRESSIONS
from tests.generated.running import Feed, answers
from tests.generated.test_engines import RELAXED, feeds, single_rows
from tests.state.programs import SCHEMA, feed, plan, program
from tests.state.test_long_runs import BATCHES, QUERIES, rows_of
from tests.state.test_pieces import Shelf
from tests.state.turns import TurnsRunner, contents


def in_turns(case: Case, feed: Feed, turns: Sequence[int], *, mapped: bool = True) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            ReferenceHost,
            "runner",
            lambda _, query, schema, chosen: TurnsRunner(query, schema, chosen, turns, mapped=mapped),
        )
        return answers(case, "reference", feed)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=RELAXED)
@given(case=cases(), data=st.data())
def test_processes_that_take_turns_give_the_answers_of_one(case: Case, data: st.DataObject) -> None:
    feed = data.draw(feeds(case))
    turns = data.draw(st.lists(st.integers(0, 3), min_size=4, max_size=30))
    found = in_turns(case, feed, turns, mapped=data.draw(st.booleans()))
    assert found == answers(case, "reference"), f"{case}\n  {feed}\n  {turns}"


@settings(max_examples=examples(100), deadline=None, suppress_health_check=RELAXED)
@given(case=cases(), behind=st.integers(1, 9))
def test_one_that_is_always_behind(case: Case, behind: int) -> None:
    """Row by row, so that pieces are merged in between; every so often the other one goes on."""
    turns = ([0] * behind + [1]) * 20
    assert in_turns(case, single_rows(case), turns) == answers(case, "reference"), str(case)


@pytest.mark.parametrize("behind", [1, 4])
@pytest.mark.parametrize("case", REGRESSIONS, ids=lambda c: c.query[:60])
def test_cases_that_once_failed_elsewhere(case: Case, behind: int) -> None:
    turns = ([0] * behind + [1]) * 20
    assert in_turns(case, single_rows(case), turns) == answers(case, "reference")


MORE = {
    **QUERIES,
    "texts": """
        SELECT s.g, r.g AS h, s.v FROM (SELECT ISTREAM CAST(k AS STRING) || 'x' AS g, v FROM s) [RANGE 300] s
        JOIN (SELECT ISTREAM CAST(k AS STRING) || 'x' AS g, v FROM r) [RANGE 300] r ON s.g = r.g""",
    "groups of texts": """
        SELECT CAST(k AS STRING) AS g, max(v) AS m, avg(v) AS a FROM s [RANGE 90] GROUP BY CAST(k AS STRING)""",
    "queues of many groups": "SELECT k, max(v) AS a, min(v) AS b FROM s [RANGE 2000] GROUP BY k",
    "keys that are NULL": """
        SELECT nullif(k % 5, 0) AS g, min(v) AS a, count(*) AS n FROM s [RANGE 60] GROUP BY nullif(k % 5, 0)""",
    "NULL finds nobody": """
        SELECT ISTREAM s.v, r.v AS w FROM s [RANGE 300] JOIN r [RANGE 100]
        ON nullif(s.k % 50, 7) = nullif(r.k % 50, 7)""",
    "leaving": "SELECT DSTREAM s.v, r.v AS w FROM s [RANGE 300] JOIN r [RANGE 100] ON s.k = r.k",
    "two keys": "SELECT k % 7 AS a, k % 3 AS b, max(t) AS m FROM s [ROWS 50] GROUP BY k % 7, k % 3",
    "several": "SELECT max(v) AS a, max(k) AS b, min(v) FILTER (WHERE k < 90) AS c FROM s [RANGE 300]",
    "all with all": "SELECT ISTREAM s.v, r.v AS w FROM s [RANGE 20] JOIN r [RANGE 15] ON s.k + r.k = 99",
    "outer and more": "SELECT s.v, r.v AS w FROM s [RANGE 90] LEFT JOIN r [ROWS 50] ON s.k = r.k AND s.v < r.v",
    "by value": "SELECT k FROM s [RANGE 90] EXCEPT ALL SELECT k FROM r [RANGE 60]",
    "whole": "SELECT RSTREAM k, v FROM s [RANGE 70 SLIDE 30]",
    "skipped": "SELECT k, v FROM s [RANGE 200] ORDER BY k LIMIT 3 OFFSET 2",
}


class _Process:
    def __init__(self, like: Program, root: Path) -> None:
        self.query, self.root = like.query, root
        self.fresh()

    def fresh(self) -> None:
        self.running = program(self.query)
        self.store = StateStore(str(self.root), query=fingerprint(self.query))

    def bring_up(self, version: int) -> bool:
        """Whether there was something to catch up with."""
        state = self.store.follow(version)
        if state is not None:
            self.running.catch_up(state)
            return True
        if not self.store.holds(version):
            self.fresh()
            state = self.store.load(version)
            assert state is not None
            self.running.load(state)
        return False


@pytest.mark.parametrize(("name", "processes"), paired(MORE, [2, 5]))
def test_a_long_run_in_turns_is_the_same(name: str, processes: int, tmp_path: Path) -> None:
    query = plan(MORE[name])
    straight = program(query)
    workers = [_Process(straight, tmp_path) for _ in range(processes)]
    start = answered = caught_up = 0
    for i, rows in enumerate(BATCHES * 2):
        worker = workers[i * i % processes if i % 7 else i % processes]
        if i:
            caught_up += worker.bring_up(i - 1)
        # What is wrong once stays wrong, so not every batch needs to be looked at.
        if i and (SHARE >= 1 or i % 3 == 1 or i + 1 == 2 * len(BATCHES)):
            again = _Process(straight, tmp_path)
            again.bring_up(i - 1)
            assert contents(worker.running.save()) == contents(again.running.save()), f"batch {i}"
            assert _sizes(worker.running) == _sizes(again.running), f"batch {i}"
        wanted = feed(straight, start, rows, keys=200)
        assert rows_of(feed(worker.running, start, rows, keys=200)) == rows_of(wanted), f"batch {i}"
        start += rows
        answered += sum(map(len, wanted))
        worker.store.commit(i, worker.running.save())
        worker.store.forget(i)
    assert answered
    assert caught_up > 10


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ISTREAM s.v, r.v AS w FROM s [RANGE 100] JOIN r [RANGE 100] ON s.k = r.k",
        "SELECT k, count(*) AS n, max(v) AS m FROM s [RANGE 100] GROUP BY k",
        "SELECT DISTINCT k FROM s [RANGE 100]",
        "SELECT s.v, r.v AS w FROM s [RANGE 100] FULL JOIN r [RANGE 100] ON s.k = r.k",
        "SELECT k, v FROM s [RANGE 100] ORDER BY v LIMIT 3",
    ],
)
def test_who_catches_up_forgets_too(text: str, tmp_path: Path) -> None:
    """With ever new keys, what is remembered after many turns is what one that loads remembers, up to a factor."""
    query = plan(text)
    workers = [_Process(program(query), tmp_path) for _ in range(2)]
    for i in range(60):
        worker = workers[i % 2]
        if i:
            worker.bring_up(i - 1)
        feed(worker.running, 100 * i, 100, keys=1 << 60)
        worker.store.commit(i, worker.running.save())
        worker.store.forget(i)
    fresh = _Process(program(query), tmp_path)
    fresh.bring_up(59)
    workers[0].bring_up(59)
    held = [sum(size.bytes for size in p.running.size().values()) for p in (*workers, fresh)]
    assert max(held) < 4 * held[2] + 65_536, held


def test_rows_of_bounded_windows_are_cut_where_another_one_cut_them() -> None:
    """Who loaded has rows in larger parts than who took them in one by one."""
    from penstock.operators.bounded import RowLog

    def rows(start: int, stop: int) -> Arrivals:
        number = np.arange(start, stop, dtype=np.int64)
        return Arrivals(SCHEMA[:1], (pa.array(number),), number, number)

    shelf = Shelf()
    one, other = RowLog(SCHEMA[:1]), RowLog(SCHEMA[:1])
    for i in range(10):
        one.append(rows(10 * i, 10 * i + 10))
    other.load(shelf.keep(one.save()))
    one.drop(35)
    one.append(rows(100, 107))
    other.catch_up(shelf.keep(one.save()))
    assert other.save().meta == one.save().meta
    assert other.rows(30, 107).ts.tolist() == list(range(30, 107))
    other.append(rows(107, 110))
    again = RowLog(SCHEMA[:1])
    again.load(shelf.keep(other.save()))
    assert (again.total, again.rows(0, 200).ts.tolist()) == (110, list(range(30, 110)))
    again.append(rows(110, 120))
    again.append(rows(120, 130))
    again.drop(121)
    other.catch_up(shelf.keep(again.save()))
    assert (other.total, other.rows(0, 200).ts.tolist()) == (130, list(range(120, 130)))


def _sizes(running: Program) -> dict[str, int]:
    return {name: size.rows for name, size in running.size().items()}


def _with(running: Program, start: int) -> list[Delta]:
    return feed(running, start, 50, keys=20)


def test_a_version_tried_again_elsewhere_is_not_gone_on_from(tmp_path: Path) -> None:
    """What goes on from one attempt has nothing to say to a process that has another one."""
    query = plan("SELECT k, count(*) AS n, sum(v) AS t FROM s [RANGE 40] GROUP BY k")
    one, other = _Process(program(query), tmp_path), _Process(program(query), tmp_path)
    _with(one.running, 0)
    one.store.commit(0, one.running.save())
    other.bring_up(0)
    _with(one.running, 50)
    one.store.commit(1, one.running.save())
    # Spark tries micro-batch 1 again, elsewhere, with other rows in it; then 2 and 3 go on from that.
    feed(other.running, 50, 70, keys=20)
    other.store.commit(1, other.running.save())
    for version in (2, 3):
        _with(other.running, 20 + 50 * version)
        other.store.commit(version, other.running.save())
    assert not one.store.holds(1)
    assert one.store.follow(3) is None
    assert not one.bring_up(3)
    assert rows_of(_with(one.running, 220)) == rows_of(_with(other.running, 220))


def test_only_so_many_versions_are_named(tmp_path: Path) -> None:
    query = plan("SELECT k, v FROM s [RANGE 40]")
    behind, ahead = _Process(program(query), tmp_path), _Process(program(query), tmp_path)
    _with(ahead.running, 0)
    ahead.store.commit(0, ahead.running.save())
    behind.bring_up(0)
    for version in range(1, 60):
        _with(ahead.running, 50 * version)
        ahead.store.commit(version, ahead.running.save())
    assert behind.store.follow(59) is None
    assert behind.store.follow(20) is not None


def test_what_does_not_exist_is_not_followed(tmp_path: Path) -> None:
    store = StateStore(str(tmp_path))
    assert store.follow(3) is None
    store.commit(1, {})
    assert store.follow(3) is None
    assert StateStore(str(tmp_path)).follow(1) is None, "nothing was loaded, so there is nothing to go on from"
    assert store.follow(1) is None, "that is where it is"
