"""Testing queries of your own, with pytest or anything else: time and data as a test wants them, and what it asks of
answers.

    script = Script("CREATE STREAM s (t BIGINT, v DOUBLE) TIMESTAMP BY t")
    script.rows("s", [(1, 10.0), (2, 30.0)])
    db = script.open()
    q = db.query("SELECT avg(v) AS average FROM s [ROWS 2]")
    script.play(db)
    assert_state(q, [20.0])

Owns: a simulated clock, scripts, failures on demand, comparison of answers.
Must not know: pytest. Enter at: ``connect``, ``Script``.
"""

from penstock.testing.asserts import answers, assert_answers, assert_same_answers, assert_state, snapshot
from penstock.testing.clock import Clock
from penstock.testing.faults import Consumer, crash_copy, failing, fails_on, full_disk
from penstock.testing.opening import connect
from penstock.testing.player import Player
from penstock.testing.script import Script

__all__ = [
    "Clock", "Consumer", "Player", "Script", "answers", "assert_answers", "assert_same_answers", "assert_state",
    "connect", "crash_copy", "failing", "fails_on", "full_disk", "snapshot",
]  # fmt: skip
