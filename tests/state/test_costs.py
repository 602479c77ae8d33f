"""What a save writes follows what has changed, not what is remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.storage.versions import StateStore
from tests.state.programs import feed, plan, program

WINDOW = 40_000
DELTA = 100
QUERIES = {
    "time window": "SELECT DSTREAM k, v FROM s [RANGE {w}]",
    "row window": "SELECT DSTREAM k, v FROM s [ROWS {w}]",
    "row window with slide": "SELECT DSTREAM k, v FROM s [ROWS {w} SLIDE 10]",
    "rows of each key": "SELECT DSTREAM k, v FROM s [PARTITION BY k ROWS 40]",
    "equality join": "SELECT ISTREAM s.v, r.v AS w FROM s [RANGE {w}] JOIN r [RANGE {w}] ON s.k = r.k",
    "inequality join": "SELECT ISTREAM s.v, r.v AS w FROM s [RANGE {w}] JOIN r [RANGE {w}] ON s.v > r.v * 100000",
    "groups": "SELECT k, count(*) AS n, sum(v) AS t, min(v) AS m FROM s [RANGE {w}] GROUP BY k",
    "greatest of what grows": "SELECT k % 10 AS g, max(t) AS a, min(t) AS b FROM s [RANGE {w}] GROUP BY k % 10",
    "hopping": "SELECT k, count(*) AS n FROM s [HOPPING {w} EVERY 1000] GROUP BY k",
}
GENERAL = {
    "outer join": "SELECT s.v, r.v AS w FROM s [RANGE 3000] LEFT JOIN r [RANGE 3000] ON s.k = r.k AND s.v < r.v / 8",
    "distinct": "SELECT DISTINCT k, v FROM s [RANGE 3000]",
    "top rows": "SELECT k, v FROM s [RANGE 3000] ORDER BY v LIMIT 5",
    "whole relation": "SELECT RSTREAM k FROM s [RANGE 3000 SLIDE 1000]",
    "in": "SELECT k FROM s [RANGE 3000] WHERE k IN (SELECT k FROM r [RANGE 3000])",
    "except": "SELECT v FROM s [RANGE 3000] EXCEPT SELECT v FROM r [RANGE 3000]",
    "general groups": "SELECT k, median(v) AS m, count(DISTINCT v) AS n FROM s [RANGE 3000] GROUP BY k",
}


def _measured(text: str, window: int, delta: int, saves: int, root: Path) -> tuple[int, int, int]:
    """(bytes of the first save, bytes of all ``saves`` later ones, pieces at the end)."""
    query = plan(text)
    running, store = program(query), StateStore(str(root))
    for start in range(0, window, 4000):
        feed(running, start, min(4000, window - start))
    store.commit(0, running.save())
    first = store.written
    for i in range(saves):
        feed(running, window + i * delta, delta)
        store.commit(i + 1, running.save())
    state = store.load(saves)
    assert state is not None
    return first, store.written - first, sum(len(o.tables) for o in state.values())


@pytest.mark.parametrize("name", QUERIES)
def test_a_small_change_of_a_large_window_is_a_small_save(name: str, tmp_path: Path) -> None:
    first, later, pieces = _measured(QUERIES[name].format(w=WINDOW), WINDOW, DELTA, 40, tmp_path)
    assert later / 40 < first / 15, (first, later / 40)
    assert pieces < 60


@pytest.mark.parametrize("name", QUERIES)
def test_the_size_of_the_window_does_not_matter(name: str, tmp_path: Path) -> None:
    _, small, _ = _measured(QUERIES[name].format(w=10_000), 10_000, DELTA, 40, tmp_path / "small")
    _, large, _ = _measured(QUERIES[name].format(w=40_000), 40_000, DELTA, 40, tmp_path / "large")
    assert large < 1.5 * small, (small, large)


@pytest.mark.parametrize("name", GENERAL)
def test_row_by_row_operators_write_what_changed(name: str, tmp_path: Path) -> None:
    first, later, pieces = _measured(GENERAL[name], 6000, 15, 40, tmp_path)
    assert later / 40 < first / 8, (first, later / 40)
    assert pieces < 80


def test_nothing_new_writes_nothing(tmp_path: Path) -> None:
    running, store = program(plan(QUERIES["equality join"].format(w=WINDOW))), StateStore(str(tmp_path))
    feed(running, 0, 1000)
    store.commit(1, running.save())
    written = store.written
    store.commit(2, running.save())
    assert store.written == written


def test_a_loaded_program_goes_on_saving_only_what_is_new(tmp_path: Path) -> None:
    query = plan(QUERIES["equality join"].format(w=WINDOW))
    running, store = program(query), StateStore(str(tmp_path))
    feed(running, 0, 10_000)
    store.commit(1, running.save())
    first = store.written
    other, again = StateStore(str(tmp_path)), program(query)
    state = other.load(1)
    assert state is not None
    again.load(state)
    assert [d.columns for d in feed(again, 10_000, 100)] == [d.columns for d in feed(running, 10_000, 100)]
    other.commit(2, again.save())
    assert other.written < first / 20
