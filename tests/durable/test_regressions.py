"""Interruptions that once made a difference."""

from __future__ import annotations

import collections
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

import penstock
from penstock.hosts.durable.picture import Picture
from penstock.hosts.options import SparkOptions
from penstock.testing import Clock, crash_copy
from tests.durable.disks import host_of, opened, save
from tests.durable.language import Define, Interrupt, Save, Step
from tests.durable.living import BEGIN, Lives, lived, rows_of
from tests.sessions.language import Fetch, Push, Say
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


def test_what_has_the_name_of_something_that_was_saved_is_saved_anew() -> None:
    """Its results, late rows, history and rows are not those of its predecessor."""
    stream = "CREATE STREAM s (t BIGINT, k INT) TIMESTAMP BY t SLACK 2 WITH (retain = '9 us')"
    relation, query = "CREATE RELATION r (k INT) KEY (k)", "CREATE QUERY one AS SELECT ISTREAM k FROM s [ROWS 1]"
    rows = ((5, 1), (9, 2), (1, 3), (9, 4))
    first: list[Step] = [Say(stream), Say(relation), Say(query), Push("s", rows), Push("r", ((1,), (2,)))]
    again: list[Step] = [Say("STOP QUERY one"), Say("DROP STREAM s"), Say("DROP RELATION r"), *first[:3]]
    more: list[Step] = [Push("s", ((6, 7), (9, 8), (2, 9))), Push("r", ((7,),))]
    lived([*first, Save(0), *again, Save(0), Interrupt("killed")])
    lived([*first, Save(0), *again, *more, Save(0), Interrupt("killed"), Fetch("one"), *more])


def test_what_is_declared_while_the_state_is_saved_is_not_in_it() -> None:
    ask = "CREATE QUERY one AS SELECT f(k) AS y FROM q"
    lived([Say(S), Define("f", 1), Save(3), Define("f", 2), Say("CREATE RELATION q (k INT)"), Say(ask),
           Interrupt("killed"), Push("q", ((3,),)), Fetch("one")])  # fmt: skip


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
    ask: list[Step] = [Say("CREATE QUERY one AS SELECT ISTREAM k FROM w"), Push("s", ((1, 1),)), Fetch("one")]
    anew = Say("CREATE OR REPLACE VIEW w AS SELECT k FROM v")
    ways: list[list[Step]] = [[], [anew], [Say("DROP VIEW w"), Say("DROP VIEW v")]]
    ends: list[list[Step]] = [[Interrupt("killed")], [Save(0), Interrupt("killed"), Save(0), Interrupt("closed")]]
    for more in ways:
        for end in ends:
            lived([*begin, *more, *end, *ask])


def test_who_goes_back_to_an_older_state_finds_the_functions_of_then() -> None:
    steps: list[Step] = [Define("f", 1), Say(S), Say("CREATE QUERY one AS SELECT ISTREAM f(k) AS y FROM s [ROWS 1]"),
                         Save(0), Define("f", 2), Say("STOP QUERY one"), Define("f", 3), Save(0), Interrupt("killed"),
                         Push("s", ((1, 1),)), Interrupt("killed")]  # fmt: skip
    with Lives() as lives:
        for place, step in enumerate(steps):
            if isinstance(step, Save):
                save(lives.found)
            else:
                lives.do(place, step)
        newest = max(p for p in lives.files.now if p.endswith(".version"))
        lives.files.now[newest].now[20] ^= 1
        lives.do(len(steps), Interrupt("killed"))


def _interrupts_once(marker: Path, value: int) -> int:
    if value == 2 and not marker.exists():
        marker.touch()
        raise KeyboardInterrupt
    return value


@pytest.mark.parametrize("relation", [False, True])
def test_a_query_that_was_interrupted_half_way_goes_on_when_the_directory_is_opened_again(
    tmp_path: Path, relation: bool
) -> None:
    function = partial(_interrupts_once, tmp_path / "marker")
    with penstock.connect(tmp_path / "db", engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t; CREATE RELATION r (v BIGINT)")
        db.create_function("once", function, args=["BIGINT"], returns="BIGINT")
        source = "r" if relation else "s [ROWS 5]"
        db.query(f"SELECT count(once(v)) AS n FROM {source}", name="broken")
        other = db.query("SELECT ISTREAM v FROM s [ROWS 1]", name="other")

        def give(value: int) -> None:
            if relation:
                db.execute(f"INSERT INTO r VALUES ({value})")
            else:
                db.push("s", [(value, value)])

        give(1)
        save(db)
        with pytest.raises(KeyboardInterrupt):
            give(2)
        with pytest.raises(penstock.QueryFailed, match="open it again, and it goes on"):
            collections.deque(iter(db.queries["broken"].fetch, None), maxlen=0)
        give(3)
        save(db)
        assert other.status == ("running" if relation else "failed")
    with penstock.connect(tmp_path / "db", engine="local", functions=True) as db:
        assert [q.status for q in db.queries.values()] == ["running", "running"]
        assert db.queries["broken"].current().to_pylist() == [{"n": 3}]


@pytest.mark.parametrize("saves", [False, True])
def test_results_that_overtook_others_come_once_after_a_kill(tmp_path: Path, saves: bool) -> None:
    with penstock.connect(tmp_path / "db", engine="local") as db:
        db.execute("CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t PRIORITY BY v / 100")
        query = db.query("SELECT ISTREAM v FROM s [ROWS 1]", name="q")
        db.configure(threading="graph", mode="strong")
        resting = next(o.id for o in db.graph().operators if o.kind == "intake")
        db.suspend(resting)
        for v in (1, 2, 3, 900):
            db.push("s", [(v, v)])
        db.resume(resting)
        db.settle()
        given = next(iter(query))["v"].to_pylist()
        assert given[0] == 900, "it has overtaken"
        if saves:
            save(db)
            db.push("s", [(901, 4)])
        killed = crash_copy(db, tmp_path / "killed")
    for _ in range(2):
        with penstock.connect(killed, engine="local") as db:
            given += db.queries["q"].fetch()["v"].to_pylist()
        assert sorted(given) == [1, 2, 3, *([4] if saves else []), 900]


@pytest.mark.parametrize("saves", [0, 1, 2])
def test_rows_that_did_not_wait_for_slack_or_for_another_stream_are_given_once_after_a_kill(
    tmp_path: Path, saves: int
) -> None:
    """Each of them is in a saved state, as it waits for its place, and in the log behind it."""
    with penstock.connect(tmp_path / "db", engine="local") as db:
        db.execute("""CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t SLACK 100 PRIORITY BY v / 100;
            CREATE STREAM r (t BIGINT, w BIGINT) TIMESTAMP BY t;
            CREATE STREAM q (t BIGINT, w BIGINT) TIMESTAMP BY t;
            CREATE QUERY filter AS SELECT v FROM s;
            CREATE QUERY pairs AS SELECT ISTREAM v, w FROM s [RANGE 50], r [RANGE 50] WHERE v % 100 = w;
            CREATE QUERY others AS SELECT ISTREAM r.w AS v, q.w FROM r [RANGE 50], q [RANGE 50] WHERE r.w = q.w;
            CREATE QUERY count AS SELECT ISTREAM count(*) AS v FROM s [RANGE 10]""")
        given = dict.fromkeys(db.queries, ())

        def fetch() -> None:
            for name, query in db.queries.items():
                given[name] += tuple(query.fetch()["v"].to_pylist())

        db.push("r", [(0, 1)])
        db.push("q", [(5, 1), (20, 1)])
        db.push("s", [(1, 1), (2, 901)])
        fetch()
        assert list(given.values()) == [(901,), (901,), (1, 1), ()]
        if saves > 0:
            save(db)
        db.push("s", [(3, 801)])
        db.push("q", [(30, 1)])
        fetch()
        if saves > 1:
            save(db)
        killed = crash_copy(db, tmp_path / "killed")
    for _ in range(2):
        with penstock.connect(killed, engine="local") as db:
            fetch()
            assert list(given.values()) == [(901, 801), (901, 801), (1, 1, 1), ()]
    with penstock.connect(killed, engine="local") as db:
        db.push("r", [(40, 1)])
        for stream in ("s", "r", "q"):
            db.close_stream(stream)
        fetch()
    assert sorted(given["filter"]) == [1, 801, 901]
    assert sorted(given["pairs"]) == [1, 1, 801, 801, 901, 901]
    assert sorted(given["others"]) == [1] * 6
    assert list(given["count"]) == [1, 2, 3, 2, 1, 0]


def test_a_state_that_was_taken_half_way_is_not_what_the_next_one_builds_on() -> None:
    files, clock = Forgetful(), Clock(BEGIN)
    with opened(files, clock) as db:
        db.execute(S)
        db.query("SELECT ISTREAM count(*) AS n FROM s [ROWS 9]", name="one")
        db.push("s", [(1, 1)])
        save(db)
        db.push("s", [(2, 2)])
        with patch.object(Picture, "taken", side_effect=MemoryError), pytest.raises(MemoryError):
            save(db)
        db.push("s", [(3, 3)])
        save(db)
        killed = files.killed()
    for found in (killed, files):
        with opened(found, clock) as db:
            db.push("s", [(4, 4)])
            save(db)
        with opened(found, clock) as db:
            assert rows_of(db.queries["one"].fetch()) == [(t, "+", t) for t in (1, 2, 3, 4)]


def test_a_database_that_is_closed_while_it_saves_closes() -> None:
    files, clock = Forgetful(), Clock(BEGIN)
    db = opened(files, clock)
    db.execute(S)
    db.push("s", [(1, 1)])
    kept = host_of(db).kept
    assert kept is not None
    saver = kept.saver
    before = saver._save

    def saving(*, again: bool = False) -> None:
        saver._closed = True  # close() begins, and has said so
        saver._keeper.changed.set()
        before(again=again)

    with patch.object(saver, "_save", saving):
        saver._wake.set()
        saver._thread.join(60)
    assert not saver._thread.is_alive()
    db.close()


@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize("reads", [False, True])
def test_an_answer_that_was_looked_at_and_changed_stands_after_a_restart(
    tmp_path: Path, engine: str, reads: bool
) -> None:
    """Results are saved together with the answer as it was when it was last looked at."""

    def again() -> penstock.Database:
        return penstock.Database(engine, path=tmp_path, options=SparkOptions(inline=engine == "spark"))

    with again() as db:
        db.execute(S)
        query = db.query("SELECT k, count(*) AS n FROM s [ROWS 10] GROUP BY k", name="one")
        db.push("s", [(1, 1), (2, 2)])
        assert query.current().to_pylist() == [{"k": 1, "n": 1}, {"k": 2, "n": 1}]
        if reads:
            query.fetch()
        for t in range(3, 6):
            db.push("s", [(t, 2)])
    for t in range(6, 8):
        with again() as db:
            wanted = [{"k": 1, "n": 1}, {"k": 2, "n": t - 2}]
            assert db.queries["one"].current().to_pylist() == wanted
            db.push("s", [(t, 2)])
