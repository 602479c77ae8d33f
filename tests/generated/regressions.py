"""Generated cases that some engine once got wrong."""

from __future__ import annotations

from tests.generated.language import DECLARE, Case
from tests.generated.lives import Life

_PLAIN = DECLARE.format(slack_s="", slack_r="", priority_s="", priority_r="")

REGRESSIONS = [
    # A row that enters and leaves a relation at one instant leaves no trace, so this is no instant of evaluation.
    Case(
        _PLAIN,
        "SELECT RSTREAM DISTINCT a.k AS x0 FROM r a, q c WHERE c.k IN (0, 1, 2)",
        {"s": [], "r": [(0, None, None, None)]},
        [(1, "+", (0, None)), (2, "+", (None, None)), (2, "-", (None, None)), (3, "+", (None, None))],
    ),
    # The row of an aggregate over nothing is there before the first instant and is no answer if it leaves at it.
    Case(_PLAIN, "SELECT ISTREAM avg(v) FROM s [RANGE 4]", {"s": [(0, 1, "a", 2.0, 1), (3, 1, "a", 1.5, 1)], "r": []}),
    # Relations alone: answered at once for what they have, then for what changes.
    Case(
        _PLAIN,
        "SELECT k, name FROM q",
        {"s": [], "r": []},
        [(2, "+", (2, "b")), (5, "-", (1, "a"))],
        [(1, "a")],
    ),
    # A relation's rows from the beginning, when the first window ends long after the first rows came.
    Case(
        _PLAIN,
        "SELECT a.k AS g0, count(*) AS x0 FROM r [HOPPING 8 EVERY 3] a JOIN q b ON a.k = b.k GROUP BY a.k",
        {"s": [], "r": [(0, 1, None, None), (1, 1, None, None), (9, 1, None, None), (20, 1, None, None)]},
        [(1, "-", (1, None)), (1, "+", (1, None)), (1, "+", (1, None))],
        [(1, None), (1, None), (1, None)],
    ),
    # Rows can be ordered by arrays, also by those who read the plan from its JSON form.
    Case(
        _PLAIN,
        "SELECT k AS g0, collect(v) AS x0 FROM s [RANGE 5] GROUP BY k ORDER BY x0 DESC LIMIT 1",
        {"s": [(0, 1, "a", 2.0, 1), (1, 2, "a", 3.0, 1), (2, 1, "b", 9.0, 1), (7, 1, "b", 1.0, 1)], "r": []},
    ),
]

_RELATIONS = ("CREATE RELATION a (k INT, x INT)", "CREATE RELATION b (k INT, y INT)")
_DERIVED = "CREATE STREAM d AS SELECT ISTREAM k, x FROM a"

LIVES = {
    "a window over a stream over relations ends one tick after the last change": Life(
        _RELATIONS,
        (
            "INSERT INTO a VALUES (0, 1), (0, 2)",
            "DELETE FROM a WHERE k = 0 AT 2",
            "INSERT INTO a VALUES (0, 1), (0, 2)",
            "query n1: SELECT q0.k FROM (SELECT ISTREAM k FROM a) [TUMBLING 4] AS q0 WHERE q0.k IN (SELECT k FROM a)",
        ),
    ),
    "what leaves by time alone one tick after the last change is an element": Life(
        (*_RELATIONS, _DERIVED, "CREATE STREAM f AS SELECT DSTREAM k, count(*) AS n FROM d [NOW] GROUP BY k"),
        ("query n1: SELECT ISTREAM k FROM f [NOW]", "INSERT INTO a VALUES (3, 2)"),
    ),
    "a query that has reached its end is read by nobody, but that is not known at once": Life(
        (*_RELATIONS, "CREATE STREAM e AS SELECT ISTREAM a.k FROM a, b WHERE a.k = b.k"),
        (
            "INSERT INTO a VALUES (3, 1) AT 7",
            "INSERT INTO b VALUES (3, 1) AT 11",
            "query n1: SELECT k FROM e [BEGIN WINDOW 0 END WINDOW 3 HOP SIZE (3, 3) END QUERY 12]",
            "INSERT INTO a VALUES (2, 1)",
            "DELETE FROM a WHERE k = 2",
            "INSERT INTO b VALUES (0, 3) AT 12",
        ),
    ),
}
"""Lives of databases that some engine once got wrong."""
