"""Long runs with many saves: merged pieces, compacted state and groups that come and go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from penstock.graph.programs import Program
from penstock.model.delta import Delta
from penstock.model.values import to_python
from penstock.storage.versions import StateStore, fingerprint
from tests.budget import paired
from tests.state.programs import feed, plan, program

QUERIES = {
    "windows": "SELECT k, v FROM s [RANGE 700]",
    "slides": "SELECT k, v FROM s [RANGE 700 SLIDE 90]",
    "row slides": "SELECT k, v FROM s [ROWS 500 SLIDE 30]",
    "rows of each key": "SELECT k, v FROM s [PARTITION BY k ROWS 3]",
    "join": "SELECT s.k, s.v, r.v AS w FROM s [RANGE 300] JOIN r [ROWS 200] ON s.k = r.k",
    "join by ends": "SELECT ISTREAM s.v, r.v AS w FROM s [RANGE 300] JOIN r [RANGE 500] ON s.k = r.k AND s.v < r.v",
    "three ends": """
        SELECT ISTREAM s.v, r.v AS w, x.v AS y FROM s [RANGE 300] JOIN r [RANGE 100] ON s.k = r.k
        JOIN s [RANGE 200] x ON x.k = r.k WHERE x.v > 0.5""",
    "inequality": "SELECT s.v, r.v AS w FROM s [RANGE 200] JOIN r [RANGE 200] ON s.v > r.v * 50",
    "least and greatest": "SELECT k % 37 AS g, min(v) AS a, max(v) AS b, max(t) FROM s [RANGE 900] GROUP BY k % 37",
    "groups that empty": "SELECT k, min(v) AS a, sum(v) AS b, count(*) AS n FROM s [RANGE 40] GROUP BY k",
    "no keys": "SELECT max(v) AS a, min(t) AS b, avg(v) AS c FROM s [RANGE 2] WHERE k % 7 = 0",
    "only grows": "SELECT k % 50 AS g, max(v) AS a, min(v) AS b FROM s GROUP BY k % 50",
    "general groups": "SELECT k % 30 AS g, median(v) AS m, last(v) AS l FROM s [RANGE 500] GROUP BY k % 30",
    "outer join": "SELECT s.v, r.v AS w FROM s [RANGE 90] FULL JOIN r [RANGE 60] ON s.k = r.k",
    "top": "SELECT k, v FROM s [RANGE 500] ORDER BY v DESC LIMIT 7",
    "distinct": "SELECT DISTINCT k FROM s [RANGE 400]",
    "in": "SELECT k, v FROM s [RANGE 300] WHERE k NOT IN (SELECT k FROM r [RANGE 300])",
    "masters": "SELECT s.k, count(*) AS n FROM s [RANGE 400], r [NOW] GROUP BY s.k MASTER r",
    "hops": "SELECT k % 20 AS g, sum(v) AS t, max(v) AS m FROM s [HOPPING 400 EVERY 50] GROUP BY k % 20",
    "hops with a window": "SELECT s.k, r.v FROM s [TUMBLING 100] JOIN r [RANGE 60] ON s.k = r.k",
    "sessions": "SELECT k, count(*) AS n, sum(v) AS t FROM s [PARTITION BY k SESSION GAP 300] GROUP BY k",
    "stream of a query": """
        SELECT x, count(*) AS n FROM (SELECT ISTREAM k % 9 AS x, v FROM s [RANGE 100]) [RANGE 300] GROUP BY x""",
}
BATCHES = [1, 7, 0, 60, 300, *[5] * 9, 40, 900, 3, 200, *[1] * 9, 500, 20, 20, 20, 700]


def rows_of(deltas: list[Delta]) -> Counter[object]:
    found: Counter[object] = Counter()
    for d in deltas:
        columns = [to_python(c, f.type) for c, f in zip(d.columns, d.schema, strict=True)]
        found.update(zip(d.ts.tolist(), d.sub.tolist(), d.sign.tolist(), *columns, strict=True))
    return found


def _sizes(running: Program) -> dict[str, int]:
    """Rows that have ended out of order stay in a join for a while, how long depends on its room."""
    return {name: size.rows for name, size in running.size().items() if "FastJoin" not in name}


def _again(store: StateStore, version: int, like: Program) -> Program:
    fresh = program(like.query)
    state = store.load(version, verify=True)
    assert state is not None
    fresh.load(state)
    return fresh


@pytest.mark.parametrize(("name", "every"), paired(QUERIES, [1, 3]))
def test_a_long_run_with_restarts_is_the_same(name: str, every: int, tmp_path: Path) -> None:
    query = plan(QUERIES[name])
    straight, restarted = program(query), program(query)
    store = StateStore(str(tmp_path), query=fingerprint(query))
    start = answered = 0
    for i, rows in enumerate(BATCHES):
        wanted = feed(straight, start, rows, keys=200)
        assert rows_of(feed(restarted, start, rows, keys=200)) == rows_of(wanted), f"batch {i}"
        start += rows
        answered += sum(map(len, wanted))
        store.commit(i, restarted.save())
        store.forget(i)
        if i % every == 0:
            restarted = _again(StateStore(str(tmp_path), query=fingerprint(query)), i, restarted)
            store = StateStore(str(tmp_path), query=fingerprint(query))
            store.load(i)
        assert _sizes(restarted) == _sizes(straight)
    assert answered
