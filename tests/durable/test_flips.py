"""A byte that is another one than was written: opening says so and names the file, or nothing is lost. And without
``sync`` a loss of power leaves the beginning of what happened, at least up to the last saved state."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.model.errors import StorageError
from penstock.testing import Clock
from tests.budget import examples
from tests.durable.disks import opened, save
from tests.durable.language import Interrupt, Note, Save, Step, histories, listed
from tests.durable.living import BEGIN, Lives, done, seen
from tests.sessions.language import Pass
from tests.storage.forgetful import Forgetful

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


@settings(max_examples=examples(90), suppress_health_check=RELAXED)
@given(steps=histories(["closed", "killed"]), data=st.data())
def test_a_flipped_byte(steps: list[Step], data: st.DataObject) -> None:
    with Lives() as lives:
        lives.live(steps)
        files, clock, wanted = lives.files, lives.clock, seen(lives.found)
        for _ in range(4):
            found = files.killed()
            path = data.draw(st.sampled_from(sorted(p for p in found.now if found.now[p].now)))
            at = data.draw(st.integers(0, 1 << 20)) % found.size(path)
            found.now[path].now[at] ^= 1 << data.draw(st.integers(0, 7))
            try:
                db = opened(found, clock)
            except StorageError as error:
                if path not in str(error):
                    raise AssertionError(f"byte {at} of {path}: {error}{listed(steps)}") from error
                continue
            with db:
                db.settle()
                told = seen(db)
                assert told == wanted, f"byte {at} of {path}{listed(steps)}"


@settings(max_examples=examples(90), suppress_health_check=RELAXED)
@given(steps=histories(["closed"]), seed=st.integers(0, 2**32))
def test_without_sync_a_beginning_is_there_after_a_loss_of_power(steps: list[Step], seed: int) -> None:
    # What the clock says is an entry too, so of a step with such a stream only a part may be there.
    steps = [s for s in steps if not isinstance(s, Interrupt | Note) and "now" not in str(s) and "u (" not in str(s)]
    files, clock = Forgetful(), Clock(BEGIN)
    with opened(files, clock) as db:
        lived = [seen(db)]
        safe = 0
        for step in steps:
            if isinstance(step, Save):
                save(db)
                safe = len(lived) - 1
            elif isinstance(step, Pass):
                clock.advance(step.ticks)
            else:
                done(db, step)
            db.settle()
            lived.append(seen(db))
        lost = files.power_lost(random.Random(seed))
    with opened(lost, clock) as db:
        db.settle()
        assert seen(db) in lived[safe:], listed(steps)
        done(db, Pass(0))
    with opened(lost.killed(), clock) as db:
        db.settle()
        assert seen(db) in lived[safe:], listed(steps)
