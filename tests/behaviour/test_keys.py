"""Pushes with keys: what comes twice is taken once, also after a restart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.database.database import core_of
from penstock.ingest import keys
from penstock.ingest.keys import Keys
from penstock.testing import crash_copy

STREAM = "CREATE STREAM s (t BIGINT, v BIGINT) TIMESTAMP BY t"
RELATION = "CREATE RELATION r (k BIGINT, v BIGINT) KEY (k)"


def test_what_comes_twice_is_taken_once(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAM)
        query = db.query("SELECT v FROM s [ROWS 1]")
        db.push("s", [(1, 10)], key=("a", 1))
        db.push("s", [(1, 10)], key=("a", 1))
        db.push("s", [(2, 20)], key=("b", 1))
        db.push("s", [(3, 30)], key=("a", 2))
        db.push("s", [(2, 20)], key=("b", 1))
        assert db.stream("s").given == 3
        added = [row["v"] for row in query.fetch().to_pylist() if row["op"] == "+"]
        assert added == [10, 20, 30]


def test_a_push_that_is_refused_leaves_no_key(engine: str) -> None:
    with penstock.connect(engine=engine) as db:
        db.execute(STREAM)
        with pytest.raises(penstock.InputError, match="`v`"):
            db.push("s", [(1, "many")], key=("a", 1))
        db.push("s", [(1, 10)], key=("a", 1))
        assert db.stream("s").given == 1


def test_a_push_that_the_host_refuses_leaves_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        db.push("s", [(1, 10)], key=("a", 1))

        def refuse(*_: object) -> None:
            raise penstock.InputError("not now")

        with monkeypatch.context() as patch:
            patch.setattr(core_of(db).host, "deliver", refuse)
            with pytest.raises(penstock.InputError, match="not now"):
                db.push("s", [(2, 20)], key=("a", 2))
        db.push("s", [(2, 20)], key=("a", 2))
        db.push("s", [(2, 20)], key=("a", 2))
        db.push("s", [(1, 10)], key=("a", 1))
        assert db.stream("s").given == 2


def test_keys_of_relations_and_of_streams_that_are_closed() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(f"{STREAM}; {RELATION}")
        for _ in range(2):
            db.push("r", [(1, 10)], key=("a", 1))
            db.push("r", [], key=("a", 2))
            db.push("s", [(1, 10)], key=("a", 1))
            db.close_stream("s")
        assert core_of(db).relations["r"].rows == [(1, 10)]
        with pytest.raises(penstock.InputError, match="the key \\(1\\) is there already"):
            db.push("r", [(1, 10)], key=("a", 3))
        with pytest.raises(penstock.StateError, match="closed"):
            db.push("s", [(1, 10)], key=("a", 2))


def test_keys_that_are_none() -> None:
    wrong: list[tuple[Any, str, str]] = [
        ("a", "the key of a push is 'a'", "such as ('sensor 7', 41)"),
        (("a", 1, 2), "the key of a push is ('a', 1, 2)", "such as ('sensor 7', 41)"),
        ((1, 1), "the producer in the key of a push is 1", "a text of 1 to 255 characters"),
        (("", 1), "the producer in the key of a push is ''", "a text of 1 to 255 characters"),
        (("a" * 256, 1), "the producer in the key of a push is 'aaa", "a text of 1 to 255 characters"),
        (("ab\ud800", 1), "has half a character at place 3", "whole characters"),
        (("a", "1"), "the sequence in the key of a push is '1'", "an integer of at most 64 bits"),
        (("a", True), "the sequence in the key of a push is True", "an integer of at most 64 bits"),
        (("a", 2**63), "the sequence in the key of a push is 9223372036854775808", "an integer of at most 64 bits"),
    ]
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        for key, message, hint in wrong:
            with pytest.raises(penstock.InputError) as caught:
                db.push("s", [(1, 1)], key=key)
            assert message in caught.value.message
            assert hint in str(caught.value.hint)
        assert db.stream("s").given == 0


def test_what_cannot_be_known_is_refused() -> None:
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        for i in range(keys.SEQUENCES + 1):
            db.push("s", [(i, i)], key=("a", 2 * i))
        with pytest.raises(penstock.InputError) as caught:
            db.push("s", [(9_999, 0)], key=("a", 0))
        assert caught.value.message == (
            "stream `s`: sequence 0 of producer 'a' is older than the 1,000 newest, which begin with 2, so it is not "
            "known whether it has been taken"
        )
        db.push("s", [(9_999, 0)], key=("a", 2))
        assert db.stream("s").given == keys.SEQUENCES + 1
        db.push("s", [(9_999, 0)], key=("a", 3))  # between two that are known, and so not taken yet
        assert db.stream("s").given == keys.SEQUENCES + 2


def test_the_producer_that_is_silent_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "PRODUCERS", 3)
    with penstock.connect(engine="local") as db:
        db.execute(STREAM)
        for t, producer in enumerate("abcad"):
            db.push("s", [(t, 0)], key=(producer, t))
        for producer, sequence in (("a", 0), ("a", 3), ("c", 2), ("d", 4)):
            db.push("s", [(9, 0)], key=(producer, sequence))
        assert db.stream("s").given == 5
        db.push("s", [(9, 0)], key=("b", 1))
        assert db.stream("s").given == 6


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(-5, 20))), st.lists(st.integers(0, 60)))
def test_keys_are_what_they_were(pushed: list[tuple[str, int]], saves: list[int]) -> None:
    found, known = Keys(), set[tuple[str, int]]()
    for i, key in enumerate(pushed):
        assert found.has(key, "here") == (key in known)
        if key not in known:
            refused = found.plus(key)  # nobody goes on with it
            assert not found.has(key, "here")
            del refused
            found = found.plus(key)
            known.add(key)
        if i in saves:
            found = Keys.of(found.table())
    assert all(found.has(key, "here") for key in known)
    assert found.table().equals(Keys.of(found.table()).table())


@pytest.mark.parametrize("killed", [False, True])
def test_on_spark_over_a_restart(tmp_path: Path, killed: bool) -> None:
    from tests.spark.direct import directly

    with directly():
        with penstock.connect(tmp_path / "db", engine="spark") as db:
            db.execute(f"{STREAM}; {RELATION}")
            db.query("SELECT v FROM s", name="q")
            for i in (0, 1, 1, 2, 0):
                db.push("s", [(i, i)], key=("a", i))
                db.push("r", [(i, i)], key=("a", i))
            assert db.stream("s").given == 3
            path = crash_copy(db, tmp_path / "killed") if killed else tmp_path / "db"
        for _ in range(2):
            with penstock.connect(path, engine="spark") as db:
                for i in range(5):
                    db.push("s", [(i, i)], key=("a", i))
                    db.push("r", [(i, i)], key=("a", i))
                assert db.stream("s").given == 5
                assert core_of(db).relations["r"].rows == [(i, i) for i in range(5)]
                assert db.queries["q"].peek(100)["v"].to_pylist() == list(range(5))


# -- with a directory -----------------------------------------------------------------------------------


def pushed_again(path: Path) -> tuple[int, list[Any]]:
    """What there is after a producer has sent everything again."""
    with penstock.connect(path, engine="local") as db:
        for i in range(6):
            db.push("s", [(i, i)], key=("a", i))
            db.push("r", [(i, i)], key=("a", i))
        return db.stream("s").given, core_of(db).relations["r"].rows


@pytest.mark.parametrize("saved", [False, True])
def test_keys_are_there_after_a_restart(tmp_path: Path, saved: bool) -> None:
    with penstock.connect(tmp_path, engine="local") as db:
        db.execute(f"{STREAM}; {RELATION}")
        for i in range(3):
            db.push("s", [(i, i)], key=("a", i))
            db.push("r", [(i, i)], key=("a", i))
        if saved:
            core_of(db).host.abilities().save()
        db.heartbeat("s", 3)
        db.push("s", [(3, 3)], key=("a", 3))
    for _ in range(2):
        given, rows = pushed_again(tmp_path)
        assert given == 6
        assert rows == [(i, i) for i in range(6)]


_KILLED = f"""
import os, sys
import penstock
from penstock.database.database import core_of

db = penstock.connect(sys.argv[1], engine="local")
db.execute('''{STREAM}; {RELATION}''')
for i in range(5):
    db.push("s", [(i, i)], key=("a", i))
    db.push("r", [(i, i)], key=("a", i))
    if i == int(sys.argv[2]):
        core_of(db).host.abilities().save()
os._exit(9)
"""


@pytest.mark.parametrize("saved", ["-1", "2", "4"])
def test_keys_are_there_after_a_kill(tmp_path: Path, saved: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), saved], env=environment, check=False)
    assert killed.returncode == 9
    assert pushed_again(tmp_path) == (6, [(i, i) for i in range(6)])
