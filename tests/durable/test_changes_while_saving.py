"""What is written of a state is what was there when it was taken, however much operators have changed since."""

from __future__ import annotations

import random

import pytest

from penstock.database.database import core_of
from penstock.testing import Clock
from tests.durable.disks import in_memory, opened, save
from tests.durable.living import BEGIN, rows_of
from tests.storage.forgetful import Forgetful

DECLARE = """
CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT, d DOUBLE) TIMESTAMP BY t SLACK 7;
CREATE STREAM r (t BIGINT, k BIGINT, w BIGINT) TIMESTAMP BY t;
CREATE RELATION q (k BIGINT, x BIGINT);
"""
QUERIES = {
    "distinct": "SELECT DISTINCT k, v FROM s [ROWS 30]",
    "outer join": "SELECT s.k, v, w FROM s [ROWS 20] FULL JOIN r [ROWS 20] ON s.k = r.k AND v < w",
    "exists": "SELECT k, v FROM s [ROWS 30] WHERE EXISTS (SELECT * FROM r [ROWS 20] WHERE r.k = s.k)",
    "not exists": "SELECT k, v FROM s [ROWS 30] WHERE NOT EXISTS (SELECT * FROM r [ROWS 20] WHERE r.k = s.k AND w < v)",
    "not in": "SELECT k, v FROM s [ROWS 30] WHERE v NOT IN (SELECT w FROM r [ROWS 20])",
    "groups": "SELECT k, count(*) AS n, sum(v) AS a, avg(d) AS b, min(d) AS c, max(v) AS e, median(d) AS m, "
    "stddev(d) AS f, count(DISTINCT v) AS g, first(v) AS h, last(d) AS i, collect(DISTINCT v) AS j "
    "FROM s [ROWS 30] GROUP BY k",
    "one group": "SELECT median(d) AS m, count(DISTINCT v) AS g FROM s [ROWS 30]",
    "having": "SELECT k, median(d) AS m FROM s [ROWS 30] GROUP BY k HAVING count(*) > 2",
    "except": "SELECT k, v FROM s [ROWS 30] EXCEPT ALL SELECT k, w FROM r [ROWS 20]",
    "intersect": "SELECT k FROM s [ROWS 30] INTERSECT SELECT k FROM r [ROWS 20]",
    "last distinct": "SELECT last(k) AS z FROM (SELECT DISTINCT k, v FROM s [ROWS 30]) x",
    "top": "SELECT k, v FROM s [ROWS 30] ORDER BY v, k LIMIT 5",
    "relation": "SELECT s.k, v, x FROM s [ROWS 30] LEFT JOIN q ON s.k = q.k",
    "whole": "SELECT RSTREAM k, x FROM q",
}
Rows = list[tuple[object, ...]]


def steps(seed: int) -> list[tuple[str, Rows]]:
    """Rows of the streams and of the relation."""
    numbers, now, found = random.Random(seed), 0, []
    for _ in range(24):
        now += 5
        mine: Rows = [
            (now - numbers.randrange(12), numbers.randrange(4), numbers.randrange(6), numbers.choice(_DOUBLES))
            for _ in range(8)
        ]
        found.append(("s", mine))
        found.append(("r", [(now, numbers.randrange(4), numbers.choice([0, 3, None])) for _ in range(5)]))
        found.append(("q", [(numbers.randrange(4), numbers.randrange(3))]))
    return found


_DOUBLES = [0.0, -0.0, 1.5, 1e300, 0.1, float("nan"), float("inf"), None]


@pytest.mark.parametrize("name", QUERIES)
def test_operators_go_on_while_their_state_is_written(name: str) -> None:
    clock, files = Clock(BEGIN), Forgetful()
    with in_memory(clock) as wanted:
        found = opened(files, clock)
        for db in (wanted, found):
            db.execute(DECLARE)
            db.query(QUERIES[name], name="q1")
        todo = steps(len(name))

        def do(count: int) -> None:
            for stream, rows in todo[:count]:
                for db in (wanted, found):
                    if stream == "q":
                        db.execute(f"INSERT INTO q VALUES {', '.join(map(str, rows))}")
                    else:
                        db.push(stream, rows)
            del todo[:count]
            if len(todo) % 2:  # else results wait for a reader
                assert rows_of(found.queries["q1"].fetch()) == rows_of(wanted.queries["q1"].fetch())

        while todo:
            do(5)
            save(found, lambda: do(4))
            files = files.killed()
            found.close()
            found = opened(files, clock)
            if "RSTREAM" not in QUERIES[name]:
                assert rows_of(found.queries["q1"].current()) == rows_of(wanted.queries["q1"].current())
            assert rows_of(found.late("s")) == rows_of(wanted.late("s"))
        found.close()


def test_results_that_are_being_added_up_are_not_lost() -> None:
    """They have been fetched, and are not in the answer as it stands yet."""
    clock, files = Clock(BEGIN), Forgetful()
    with opened(files, clock) as db:
        db.execute(DECLARE)
        query = db.query("SELECT k, w FROM r [ROWS 3]", name="q1")
        db.push("r", [(1, 1, 1), (2, 2, 2)])
        query.fetch()
        db.push("r", [(3, 3, 3), (4, 4, 4)])
        with core_of(db).queries["q1"].results._adding:  # as another thread has it that adds up
            query.fetch()
            save(db)
            files = files.killed()
    with opened(files, clock) as db:
        query = db.queries["q1"]
        assert sorted(query.current().to_pydict()["k"]) == [2, 3, 4]
        assert query.fetch().num_rows == 0
        db.push("r", [(5, 5, 5)])
        assert query.fetch().num_rows == 2
        assert sorted(query.current().to_pydict()["k"]) == [3, 4, 5]
