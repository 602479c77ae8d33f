"""Generated cases that some engine once got wrong."""

from __future__ import annotations

from tests.generated.language import DECLARE, Case

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
