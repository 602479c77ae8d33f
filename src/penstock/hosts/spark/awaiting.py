"""Waiting for a streaming query, and stopping it between micro-batches."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING

from pyarrow import fs

from penstock.hosts.spark.checkpoint import located
from penstock.hosts.spark.lives import close_inputs
from penstock.hosts.spark.metrics import checkpoint_of, waiting
from penstock.hosts.spark.running import error

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK = 0.2
"""Seconds between two looks at a query that runs."""
_WAITING = "penstock: there wait {}; if no more rows come, ps.await_end(query, close=True) gives the answers"


def await_end(query: StreamingQuery, *, close: bool = False, patience: float = 60.0) -> bool:
    """Wait until a streaming query ends: True; or stop it at Ctrl-C and say where to go on: False.

    At Ctrl-C the micro-batch that runs may take ``patience`` more seconds to end; a second Ctrl-C does not wait for it.
    What was not ended is done again at the next start, so neither loses or doubles an answer. Fails with the
    ``PenstockError`` that ended the query if there is one, otherwise with the error of Spark. A line on the terminal
    says what waits for more rows (see ``waiting``).

    ``close``: the inputs end with this run, as one with ``trigger(availableNow=True)``. What waits is answered by one
    more micro-batch, into the same place. The query cannot be started again with this checkpoint location.
    """
    asked = _Asked()
    # Spark's own handler of Ctrl-C cancels all jobs, which fails the query.
    ours = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, asked) if ours else None
    try:
        while not asked.times:
            if query.awaitTermination(_LOOK):  # type: ignore[arg-type]  # it takes fractions
                closing = close_inputs(query) if close else None
                if closing is None:
                    if found := waiting(query):
                        print(_WAITING.format(found), file=sys.stderr, flush=True)
                    return True
                query = closing
        where = checkpoint_of(query)
        _let_it_end(query, asked, patience)
        query.stop()
        failure = query.exception()
        if failure is not None:
            raise failure
        print(_stopped(where), file=sys.stderr, flush=True)
        return False
    except Exception as exception:
        said = error(exception)
        if said is None:
            raise
        raise said from exception
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


class _Asked:
    """Counts Ctrl-C."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.times += 1


def _let_it_end(query: StreamingQuery, asked: _Asked, patience: float) -> None:
    """Spark has no word for "after this micro-batch": wait until one ends. The next one has hardly begun then."""
    last, until = query.lastProgress, time.monotonic() + patience
    while query.isActive and asked.times < 2 and time.monotonic() < until:
        if not query.status["isTriggerActive"] or query.lastProgress != last:
            return
        time.sleep(_LOOK / 10)


def _stopped(where: str) -> str:
    filesystem, path = located(where)
    if filesystem.get_file_info(path).type == fs.FileType.NotFound:
        return "penstock: stopped; there was no checkpoint location, so it cannot go on from here"
    found = filesystem.get_file_info(fs.FileSelector(f"{path}/commits", allow_not_found=True))
    done = [int(f.base_name) for f in found if f.base_name.isdigit()]
    after = f"after micro-batch {max(done)}" if done else "before the end of the first micro-batch"
    return f"penstock: stopped {after}; start it again with the checkpoint location {where} to go on"
