"""A disk that is full or cannot be written: what the user asked for is refused and leaves no trace, a second try works,
and whoever opens the directory then finds what was acknowledged."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.model.errors import StorageError
from penstock.storage.store import Sync
from tests.budget import examples
from tests.durable.disks import save
from tests.durable.language import Aside, Interrupt, Note, Save, Step, histories, listed
from tests.durable.living import Lives, done, seen
from tests.sessions.language import Pass, Push, Say

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@pytest.mark.parametrize("sync", ["off", "group"])
@settings(max_examples=examples(90), suppress_health_check=RELAXED)
@given(steps=histories(["closed", "killed"]), seed=st.integers(0, 2**32))
def test_what_cannot_be_written_leaves_no_trace(sync: Sync, steps: list[Step], seed: int) -> None:
    chance = random.Random(seed)
    with Lives(sync) as lives:
        try:
            for place, step in enumerate(steps):
                if chance.random() < 0.5 and not isinstance(step, Interrupt | Pass):
                    refused(lives, step, chance, eio=sync == "off")
                if isinstance(step, Save):
                    save(lives.found)
                else:
                    lives.do(place, step)
            lives.finish()
            lives.interrupt("killed", 0)
            lives.compare("after the end")
        except BaseException as error:
            error.add_note(listed(steps))
            raise


def refused(lives: Lives, step: Step, chance: random.Random, *, eio: bool) -> None:
    """Let a step fail for want of room, perhaps; then nothing has happened. What the clock says is heard first."""
    db, files = lives.found, lives.files
    for both in (lives.wanted, db):
        done(both, Pass(0))
    if chance.random() < 0.5 and eio:
        files.broken = chance.randint(0, 2)
    else:
        files.room = chance.choice([0, 0, 1, chance.randint(0, 2000)])
    db.settle()
    before = seen(db)
    try:
        if isinstance(step, Save):
            save(db)
            return
        if isinstance(step, Note):
            db.note(n=step.value)
            lives.notes["n"] = step.value
            return
        found = done(db, step)
    except StorageError:
        assert isinstance(step, Save | Note)
        found = "StorageError", []
    finally:
        files.room = files.broken = None
    if not (isinstance(found, tuple) and str(found[0]).startswith("StorageError")):
        wanted = done(lives.wanted, step)
        assert found == wanted, f"{step}, for which there was room: {found} != {wanted}"
        lives.heard(step, found)
        return
    db.settle()
    after = seen(db)
    for what in before:
        assert after[what] == before[what], f"{what}, though refused: {step}: {after[what]} != {before[what]}"


@pytest.mark.parametrize("what", ["late", "apart"])
def test_rows_aside_are_there_until_it_is_written_down_that_they_were_taken(what: str) -> None:
    with Lives() as lives:
        lives.do(0, Say("CREATE STREAM s (t BIGINT, k INT) TIMESTAMP BY t WITH (on_error = 'apart')"))
        lives.do(1, Push("s", ((5, 1), (3, 2), ("no", 3))))
        lives.files.room = 0
        found = done(lives.found, Aside("s", what))
        assert "No space left" in str(found)
        lives.files.room = None
        lives.compare("after that")
        lives.do(2, Aside("s", what))
        lives.do(3, Interrupt("killed"))
        lives.do(4, Aside("s", what))


@pytest.mark.parametrize("room", range(0, 3000, 250))
def test_a_query_and_its_stream_are_there_both_or_none(room: int) -> None:
    into = Say("CREATE QUERY q AS SELECT ISTREAM k FROM s [ROWS 1] INTO made")
    with Lives() as lives:
        lives.do(0, Say("CREATE STREAM s (t BIGINT, k INT) TIMESTAMP BY t"))
        lives.files.room = room
        before = seen(lives.found)
        if "StorageError" in str(done(lives.found, into)):
            assert seen(lives.found) == before
            lives.files.room = None
            done(lives.found, into)
        lives.files.room = None
        done(lives.wanted, into)
        lives.do(1, Interrupt("killed"))
        lives.do(2, Push("s", ((5, 1),)))
        lives.compare("after that")


@pytest.mark.parametrize("rows", [1, 1_000])
def test_time_does_not_pass_for_a_push_that_is_refused(rows: int) -> None:
    with Lives() as lives:
        lives.do(0, Say("CREATE STREAM s (t BIGINT, k INT) TIMESTAMP BY t"))
        lives.do(1, Say("CREATE STREAM now (k INT)"))
        before = seen(lives.found)
        lives.files.room = 800 * (rows > 1)
        assert "No space left" in str(done(lives.found, Push("s", ((5, 1),) * rows)))
        lives.files.room = None
        assert seen(lives.found) == before
