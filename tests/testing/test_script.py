"""Scripted sources: what arrives when, and in which pushes."""

from __future__ import annotations

import random
from datetime import datetime

import pandas as pd
import pyarrow as pa
import pytest

import penstock
from penstock.database.database import core_of
from penstock.testing import Clock, Script, answers, failing
from penstock.testing.player import Batches
from penstock.testing.steps import Close, Heartbeat, Push

DECLARE = """
CREATE STREAM s (t BIGINT, a BIGINT) TIMESTAMP BY t;
CREATE STREAM r (t BIGINT, b STRING) TIMESTAMP BY t SLACK 2;
CREATE RELATION names (b STRING, name STRING);
"""


def arrived(script: Script) -> list[tuple[object, ...]]:
    """What a script lets arrive, row by row."""
    with script.open(clock=Clock(0)) as db:
        player, found = script.player(db), list[tuple[object, ...]]()
        while (step := player.step()) is not None:
            if isinstance(step, Push):
                assert isinstance(step.rows, pa.Table)
                found += [(step.name, *row.values()) for row in step.rows.to_pylist()]
            elif isinstance(step, Heartbeat):
                found.append((step.stream, "heartbeat", step.at))
            elif isinstance(step, Close):
                found.append((step.stream, "close"))
        assert player.done
        return found


def test_streams_are_interleaved_by_the_time_of_their_rows() -> None:
    script = Script(DECLARE).rows("s", [(1, 10), (5, 50)]).rows("r", [(2, "x"), (5, "y")]).close("s")
    assert arrived(script) == [("s", 1, 10), ("r", 2, "x"), ("s", 5, 50), ("r", 5, "y"), ("s", "close")]


def test_rows_of_a_stream_arrive_as_they_are_written() -> None:
    script = Script(DECLARE).rows("s", [(1, 10), (5, 50), (3, 30)]).rows("s", [(4, 40)]).rows("r", [(4, "x")])
    assert arrived(script) == [("s", 1, 10), ("r", 4, "x"), ("s", 5, 50), ("s", 3, 30), ("s", 4, 40)]


def test_delays() -> None:
    script = Script(DECLARE).rows("s", [(1, 10), (2, 20), (9, 90)]).rows("s", [(1, 11), (2, 21)], delay=6)
    assert arrived(script) == [("s", 1, 10), ("s", 2, 20), ("s", 1, 11), ("s", 2, 21), ("s", 9, 90)]
    with script.open() as db:
        script.play(db)
        assert db.stream("s").late == 1
        assert db.late("s").to_pylist() == [{"t": 1, "a": 11}]


def test_progress_ends_and_what_says_no_time() -> None:
    seen: list[float] = []
    script = (
        Script(DECLARE)
        .rows("s", [(1, 10)])
        .heartbeat("s", 7)
        .call(lambda db: seen.append(db.stream("s").progress))
        .rows("r", [(4, "x"), (6, "y")])
        .heartbeat("r", 100, at=5)
        .close("s")
        .execute("INSERT INTO names VALUES ('x', 'Xaver')", at=2)
        .clock(50)
    )
    expected = [
        ("s", 1, 10), ("r", 4, "x"), ("r", "heartbeat", 100), ("r", 6, "y"), ("s", "heartbeat", 7), ("s", "close"),
    ]  # fmt: skip
    assert arrived(script) == expected
    assert seen == [7]


def test_rows_at_given_times() -> None:
    script = Script("CREATE STREAM s (a BIGINT)").rows("s", [(1,), (2,), (3,)], at="2024-05-01", every="1 minute")
    with script.open(clock=Clock("2024-04-30")) as db:
        q = db.query("SELECT a FROM s")
        player = script.play(db, until="2024-05-01 00:01")
        assert [(ts, a) for ts, _, a in answers(q)] == [(datetime(2024, 5, 1), 1), (datetime(2024, 5, 1, 0, 1), 2)]
        assert not player.done
        player.until("2024-05-01 00:01:30")
        assert db.clock() == 1_714_521_690_000_000
        player.rest()
        assert [(ts, a) for ts, _, a in answers(q)] == [(datetime(2024, 5, 1, 0, 2), 3)]
        assert player.step() is None


def test_times_are_written_as_the_stream_says() -> None:
    script = Script("CREATE STREAM s (at TIMESTAMP, a BIGINT) TIMESTAMP BY at WITH (time = 'ms')")
    script.rows("s", [(1_714_521_600_000, 1)]).rows("s", pd.DataFrame({"at": [1_714_521_601_000], "a": [2]}))
    with script.open() as db:
        q = db.query("SELECT a FROM s")
        script.play(db)
        assert answers(q) == [(datetime(2024, 5, 1), "+", 1), (datetime(2024, 5, 1, 0, 0, 1), "+", 2)]


def test_times_before_that_of_the_clock() -> None:
    declare = "CREATE STREAM s (a BIGINT); CREATE STREAM r (t BIGINT) TIMESTAMP BY t; CREATE RELATION n (a BIGINT)"
    script = Script(declare).rows("s", [(1,), (2,)], at="2023-01-01")
    for batch in (None, 1):
        with script.open() as db:
            q = db.query("SELECT a FROM s")
            with pytest.raises(penstock.InputError) as caught:
                script.play(db, batch=batch)
            assert "when rows of `s` arrive, 2023-01-01 00:00:00, and the clock is at 2024-01-01 00:00:00" in str(
                caught.value
            )
            assert "script.open(clock=Clock('2023-01-01 00:00:00'))" in str(caught.value)
            assert answers(q) == []
    with script.open(clock=Clock("2023-01-01 00:00:00")) as db:
        q = db.query("SELECT a FROM s")
        script.play(db)
        assert [(ts, a) for ts, _, a in answers(q)] == [(datetime(2023, 1, 1), 1), (datetime(2023, 1, 1), 2)]
    script = Script(declare).clock(-(2**61))
    with script.open() as db, pytest.raises(penstock.InputError, match=rf"Clock\(-{2**61}\)"):
        script.play(db)
    script = Script(declare).rows("r", [(5,)], at=3).rows("n", [(1,)], at=2).rows("s", [(1,)])  # not the clock's
    with script.open() as db:
        q = db.query("SELECT a FROM s")
        script.play(db)
        assert [ts for ts, _, _ in answers(q)] == [datetime(2024, 1, 1)]


def test_a_script_keeps_rows_as_they_were_written() -> None:
    listed: list[dict[str, object]] = [{"t": 1, "a": 1}]
    frame = pd.DataFrame({"t": [2], "a": [2]})
    one = {"t": 3, "a": 3}
    table = pa.table({"t": [4], "a": [4]})
    script = Script(DECLARE).rows("s", listed).rows("s", frame).rows("s", one).rows("s", table)
    listed[0]["a"] = one["a"] = 99
    listed.append({"t": 1, "a": 99})
    frame.loc[0, "a"] = 99
    assert arrived(script) == [("s", i, i) for i in range(1, 5)]


def test_relations_and_other_forms_of_rows() -> None:
    script = Script(DECLARE).rows("names", [{"b": "x", "name": "Xaver"}]).rows("names", [("y", "Ygor")], at=5)
    script.rows("r", pd.DataFrame({"t": [1, 6], "b": ["y", "y"]})).rows("s", iter([(1, 2)]))
    with script.open("reference") as db:
        q = db.query("SELECT ISTREAM name FROM r [NOW], names WHERE r.b = names.b")
        script.play(db, close=True)
        assert [(ts, name) for ts, _, name in answers(q)] == [(6, "Ygor")]


PUSHES: dict[str, tuple[Batches, list[list[int]]]] = {
    "at once": (None, [[1, 2, 3, 4, 5], [1, 2]]),
    "row by row": (1, [[1], [1], [2], [2], [3], [4], [5]]),
    "by three": (3, [[1, 2], [1, 2, 3], [4, 5]]),
}


@pytest.mark.parametrize(("batch", "expected"), PUSHES.values(), ids=PUSHES)
def test_batches(batch: Batches, expected: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(DECLARE).rows("s", [(i, i) for i in range(1, 6)]).rows("r", [(1, "x"), (2, "y")])
    with script.open() as db:
        pushed: list[list[int]] = []
        push = db.push

        def noted(name: str, rows: object, *, at: object = None) -> None:
            pushed.append(rows["t"].to_pylist())  # type: ignore[index]
            push(name, rows, at=at)

        monkeypatch.setattr(db, "push", noted)
        script.play(db, batch=batch)
        assert pushed == expected


def test_batches_at_random_are_repeatable_and_keep_each_stream_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(DECLARE).rows("s", [(i, i) for i in range(50)]).rows("r", [(i, "x") for i in range(50)])

    def played(batch: Batches) -> list[tuple[str, list[int]]]:
        with script.open() as db:
            found: list[tuple[str, list[int]]] = []
            monkeypatch.setattr(db, "push", lambda name, rows, at: found.append((name, rows["t"].to_pylist())))
            script.play(db, batch=batch)
            return found

    first = played(random.Random(7))
    assert first == played(random.Random(7)) != played("random")
    assert len(first) > 4
    for name in ("s", "r"):
        assert [t for stream, rows in first for t in rows if stream == name] == list(range(50))


def test_what_the_clock_stamps_at_different_times_is_pushed_apart() -> None:
    script = Script("CREATE STREAM s (a BIGINT)").rows("s", [(1,), (2,)], at=5).rows("s", [(3,)], at=8)
    with script.open(clock=Clock(0)) as db:
        q = db.query("SELECT count(*) AS n FROM s [NOW]")
        script.play(db)
        assert [n for _, op, n in answers(q) if op == "+"] == [1, 2, 0, 1]


def test_a_source_that_fails_and_goes_on() -> None:
    script = Script(DECLARE).rows("s", [(1, 1), (2, 2), (9, 9)]).fail(ConnectionError("no line"), at=5)
    with script.open() as db:
        q = db.query("SELECT a FROM s")
        player = script.player(db)
        with pytest.raises(ConnectionError, match="no line"):
            player.rest()
        assert [a for _, _, a in answers(q)] == [1, 2]
        player.rest()
        assert [a for _, _, a in answers(q)] == [9]
    with script.fail(KeyError).open() as db, pytest.raises(ConnectionError):
        script.play(db)


def test_a_source_of_rows_that_fails() -> None:
    source = failing([(1, 1), (2, 2), (3, 3)], after=2, error=TimeoutError)
    assert [next(source), next(source)] == [(1, 1), (2, 2)]
    with pytest.raises(TimeoutError):
        next(source)
    with pytest.raises(ConnectionError):
        list(failing([], after=2))


def test_reading_a_script() -> None:
    script = Script.read("""
        CREATE STREAM s (t BIGINT, a BIGINT)
            TIMESTAMP BY t;
        CREATE STREAM w (x STRING, y DOUBLE); CREATE RELATION n (x STRING);

        s: (1, 10), (5, 50), (3, 30)
        INSERT INTO n VALUES ('a; b');
        clock '2024-05-01'
        -- nobody said what; "it's" said
        w: ('it''s \\n', NULL), ('b', 1.5)
        s: heartbeat 9
        s: close
    """)
    with script.open() as db:
        q, w = db.query("SELECT a FROM s"), db.query("SELECT * FROM w")
        script.play(db)
        assert [a for _, _, a in answers(q)] == [10, 50]
        assert answers(w) == [(datetime(2024, 5, 1), "+", "it's \\n", None), (datetime(2024, 5, 1), "+", "b", 1.5)]
        assert core_of(db).relations["n"].rows == [("a; b",)]
        assert q.status == "ended"
    assert (len(script), repr(script)) == (6, "<Script of 6 entries>")


WRONG = {
    "no end": ("CREATE STREAM s (t BIGINT)", "does not end"),
    "no rows": ("s: 1, 2", "in parentheses"),
    "no step": ("s: ", "no step"),
    "no value": ("s: (one)", "no value"),
}


@pytest.mark.parametrize(("text", "told"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_read(text: str, told: str) -> None:
    with pytest.raises(penstock.InputError, match=told):
        Script.read(text)


def test_what_cannot_be_played() -> None:
    with pytest.raises(penstock.InputError, match="every"):
        Script(DECLARE).rows("s", [(1, 1)], every=5)
    with pytest.raises(penstock.InputError, match="`every` is '-1 second', and time does not go back"):
        Script(DECLARE).rows("s", [(1, 1)], at=7, every="-1 second")
    script = Script(DECLARE).rows("t", [(1, 1)])
    with script.open() as db, pytest.raises(penstock.InputError, match="no stream or relation `t`"):
        script.play(db)
    script = Script(DECLARE).rows("s", [(1, "x")])
    with script.open() as db, pytest.raises(penstock.InputError, match="row 1, column `a`"):
        script.play(db)
    script = Script(DECLARE).rows("s", [(None, 1)])
    with script.open() as db, pytest.raises(penstock.InputError, match="is NULL"):
        script.play(db)
    with Script(DECLARE).open() as db, pytest.raises(penstock.InputError, match="number of rows"):
        Script(DECLARE).play(db, batch=0)
    script = Script("CREATE STREAM s (a BIGINT)").rows("s", [(1,)], at=5)
    with penstock.connect(engine="reference") as db:
        db.execute(script.declare)
        with pytest.raises(penstock.InputError, match="wall clock"):
            script.play(db)
