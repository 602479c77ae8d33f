"""A process that ends between any two writes, also in the middle of a call or of a save: whoever opens the directory
finds what was acknowledged, and of the call that was under way all or nothing, or only what the clock had said."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.storage.files import Bytes
from penstock.testing import Clock
from tests.budget import examples
from tests.durable.disks import in_memory, opened, save
from tests.durable.language import Interrupt, Note, Save, Step, histories, listed
from tests.durable.living import BEGIN, done, seen
from tests.sessions.language import Pass
from tests.storage.forgetful import Forgetful

RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


class Watched(Forgetful):
    """A disk of which a picture is taken when so much has been written."""

    moment: int = -1
    picture: Forgetful | None = None

    def _write(self, bytes: int) -> None:
        if self.calls == self.moment:
            self.picture = self.killed()
        super()._write(bytes)

    def append(self, path: str, size: int, content: Sequence[Bytes]) -> int:
        if self.calls == self.moment and self.moment % 2:
            # The process ends when only some of it has been written.
            whole = b"".join(bytes(c) for c in content)
            self.picture = self.killed()
            Forgetful.append(self.picture, path, size, [whole[: random.Random(self.moment).randrange(len(whole))]])
            self.moment = -1
        return super().append(path, size, content)


def play(db: penstock.Database, clock: Clock, steps: Sequence[Step]) -> None:
    """Do these steps; saves and notes count only where there is a directory."""
    for step in steps:
        match step:
            case Save():
                save(db)  # which does nothing where there is no directory
            case Note() | Interrupt():
                pass
            case Pass(ticks):
                clock.advance(ticks)
                done(db, step)
            case _:
                done(db, step)


@settings(max_examples=examples(150), suppress_health_check=RELAXED)
@given(steps=histories(["closed"]), moment=st.integers(0, 400))
def test_a_process_that_ends_at_any_moment(steps: list[Step], moment: int) -> None:
    files, clock = Watched(), Clock(BEGIN)
    place = 0
    with opened(files, clock) as db:
        begun = files.calls
        files.moment = begun + moment % (3 * len(steps))
        while place < len(steps) and files.picture is None:
            play(db, clock, [steps[place]])
            place += 1
    if files.picture is None:
        files.picture = files.killed()  # after a clean end
    now = clock()
    with opened(files.picture, clock) as db:
        db.settle()
        found = seen(db)
        play(db, clock, steps[place:])
        db.settle()
        then = seen(db)
    acknowledged, under_way = steps[: place - 1], steps[place - 1]
    several: list[list[Step]] = [[], [under_way], [Pass(0)]]
    told = []
    for part in several:
        clock = Clock(BEGIN)
        with in_memory(clock) as wanted:
            play(wanted, clock, acknowledged)
            clock.set(now)
            play(wanted, clock, part)
            wanted.settle()
            before = seen(wanted)
            play(wanted, clock, steps[place:])
            wanted.settle()
            if before == found and seen(wanted) == then:
                return
            told.append([(what, found[what], before[what]) for what in found if found[what] != before[what]])
            told.append([(what, then[what], seen(wanted)[what]) for what in then if then[what] != seen(wanted)[what]])
    raise AssertionError(f"in step {place - 1}: {told}{listed(steps)}")
