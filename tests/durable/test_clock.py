"""What the clock moves is written down before anything is answered from it: a database that dies answers the same."""

from __future__ import annotations

import pytest

import penstock
from penstock.database.database import core_of
from penstock.testing import Clock, answers
from tests.durable.disks import opened, save
from tests.durable.language import Interrupt, Save, Step
from tests.durable.living import lived
from tests.sessions.language import Fetch, Pass, Push, Say
from tests.storage.forgetful import Forgetful

DECLARE: list[Step] = [
    Say("CREATE STREAM stocks (k BIGINT, price BIGINT)"),
    Say("CREATE STREAM news (k BIGINT)"),
    Say("CREATE STREAM silent (t TIMESTAMP, k BIGINT) TIMESTAMP BY t WITH (idle = '2 seconds')"),
    Say("CREATE QUERY one AS SELECT ISTREAM stocks.k, price FROM stocks [RANGE 9 SECONDS], news [NOW] "
        "WHERE stocks.k = news.k MASTER news"),
    Say("CREATE QUERY two AS SELECT k, count(*) AS n FROM stocks [TUMBLING 4 SECONDS] GROUP BY k"),
    Say("CREATE QUERY three AS SELECT count(*) AS n FROM news [RANGE 3 SECONDS]"),
    Say("CREATE QUERY four AS SELECT news.k FROM news [ROWS 2] LEFT JOIN silent [RANGE 5 SECONDS] "
        "ON news.k = silent.k"),
]  # fmt: skip
LIFE: list[Step] = [
    Push("silent", (("2024-01-01 00:00:00", 1),)), Push("stocks", ((1, 10), (2, 20))), Push("news", ((2,),)), Pass(1),
    Push("news", ((1,),)), Pass(2_500_000), Push("stocks", ((1, 11),)), Pass(1_000_000), Push("news", ((1,),)),
    Pass(4_000_000), Pass(9_000_000),
]  # fmt: skip


@pytest.mark.parametrize("how", ["closed", "killed"])
@pytest.mark.parametrize("saves", [False, True])
def test_a_database_that_ended_answers_the_same(how: str, saves: bool) -> None:
    steps = list(DECLARE)
    for i, step in enumerate(LIFE):
        steps += [step, *([Save(0)] if saves and i % 3 == 1 else []), Interrupt(how, i)]
    lived([*steps, *(Fetch(name) for name in ("one", "two", "three", "four"))])


def test_a_move_is_in_the_log_before_its_answers_are_there() -> None:
    clock, files = Clock("2024-01-01"), Forgetful()
    db = opened(files, clock)
    db.execute("CREATE STREAM stocks (k BIGINT); CREATE STREAM news (k BIGINT)")
    query = db.query("SELECT ISTREAM stocks.k FROM stocks [RANGE 9 SECONDS], news [NOW] MASTER news", name="q")
    db.push("stocks", [(1,)])
    db.push("news", [(1,)])
    found: list[penstock.Database] = []
    query.subscribe(lambda table: found.append(opened(files.killed(), Clock(clock()))))
    clock.advance(5)
    (again,) = found
    assert again.stream("stocks").progress == db.stream("stocks").progress == clock()
    assert answers(again.queries["q"]) == answers(query) != []
    again.close()
    db.close()


def test_what_waits_goes_on_when_it_is_opened_again() -> None:
    clock, files = Clock("2024-01-01"), Forgetful()
    db = opened(files, clock)
    db.execute("CREATE STREAM s (k BIGINT)")
    db.query("SELECT count(*) AS n FROM s [RANGE 9 SECONDS]", name="q")
    db.push("s", [(1,)])
    save(db)
    files = files.killed()
    db.close()
    clock.advance("1 minute")
    with opened(files, clock) as again:
        core_of(again).moved()
        assert [row[2] for row in answers(again.queries["q"])] == [1, 1, 0]


def test_time_does_not_pass_for_an_idle_stream_while_its_database_is_closed() -> None:
    clock, files = Clock(0), Forgetful()
    db = opened(files, clock)
    db.execute("CREATE STREAM s (t BIGINT) TIMESTAMP BY t WITH (idle = '10 us')")
    db.query("SELECT t FROM s [RANGE 1000]", name="q")
    db.push("s", [(5,)])
    db.close()
    clock.advance(500)
    with opened(files.killed(), clock) as again:
        clock.advance(12)
        assert again.stream("s").progress == 7
