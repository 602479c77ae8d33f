"""Interruptions that once made a difference."""

from __future__ import annotations

from tests.durable.disks import opened, save
from tests.durable.living import BEGIN, Lives, lived, rows_of
from tests.durable.language import Define, Interrupt, Save
from tests.sessions.language import Fetch, Push, Say
from penstock.testing import Clock
from tests.storage.forgetful import Forgetful

S = "CREATE STREAM s (t BIGINT, k INT) TIMESTAMP BY t"


def test_who_reads_a_stopped_query_confirms_nothing_of_its_successor() -> None:
    files, clock = Forgetful(), Clock(BEGIN)
    with opened(files, clock) as db:
        db.execute(S)
        old = db.query("SELECT ISTREAM k FROM s [ROWS 1]", name="one")
        db.push("s", [(1, 1), (2, 2)])
        old.stop()
        db.query("SELECT ISTREAM k FROM s [ROWS 1]", name="one")
        db.push("s", [(3, 3)])
        assert old.fetch().num_rows == 2
        killed = files.killed()
        save(db)
        saved = files.killed()
    for found in (killed, saved):
        with opened(found, clock) as db:
            assert rows_of(db.queries["one"].fetch()) == [(3, "+", 3)]


def test_what_is_declared_while_the_state_is_saved_is_not_in_it() -> None:
    lived([Say(S), Define("f", 1), Save(3), Define("f", 2), Say("CREATE RELATION q (k INT)"),
           Say("CREATE QUERY one AS SELECT f(k) AS y FROM q"), Interrupt("killed"), Push("q", ((3,),)), Fetch("one")])  # fmt: skip


def test_results_that_are_gone_are_told_after_a_restart_too() -> None:
    bounded = "CREATE QUERY one AS SELECT ISTREAM k FROM s [ROWS 1] WITH (results = '4 rows')"
    pushes = [Push("s", ((i, i), (i, i))) for i in range(5)]
    for end in ([Interrupt("killed")], [Save(0), Interrupt("killed")]):
        lived([Say(S), Say(bounded), *pushes, *end, Fetch("one"), Fetch("one")])
        lived([Say(S), Say(bounded), *pushes[:2], *end, *pushes[2:], Fetch("one"), Fetch("one")])
        lived([Say(S), Say(bounded), *pushes, Fetch("one"), *end, Fetch("one")])


def test_a_view_over_one_that_was_replaced_is_there_and_means_what_it_meant() -> None:
    begin = [Say(S), Say("CREATE VIEW v AS SELECT k FROM s [ROWS 3]"), Say("CREATE VIEW w AS SELECT k FROM v"),
             Say("CREATE OR REPLACE VIEW v AS SELECT k + 1 AS k FROM s [ROWS 1]")]  # fmt: skip
    ask = [Say("CREATE QUERY one AS SELECT ISTREAM k FROM w"), Push("s", ((1, 1),)), Fetch("one")]
    for more in ([], [Say("CREATE OR REPLACE VIEW w AS SELECT k FROM v")], [Say("DROP VIEW w"), Say("DROP VIEW v")]):
        for end in ([Interrupt("killed")], [Save(0), Interrupt("killed"), Save(0), Interrupt("closed")]):
            lived([*begin, *more, *end, *ask])
