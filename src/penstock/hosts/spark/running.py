"""Waiting for a streaming query, stopping it between micro-batches, and what its failure means."""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING

from pyarrow import fs

from penstock.hosts.spark.checkpoint import located
from penstock.hosts.spark.metrics import checkpoint_of
from penstock.hosts.spark.ship import NEEDED
from penstock.model import errors
from penstock.model.errors import EngineError, PenstockError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK = 0.2
"""Seconds between two looks at a query that runs."""
_AGAIN = "start it again with the same checkpoint location: it goes on where it was"


def await_end(query: StreamingQuery, *, patience: float = 60.0) -> bool:
    """Wait until a streaming query ends: True; or stop it at Ctrl-C and say where to go on: False.

    At Ctrl-C the micro-batch that runs may take ``patience`` more seconds to end; a second Ctrl-C does not wait for it.
    What was not ended is done again at the next start, so neither loses or doubles an answer. Fails with the
    ``PenstockError`` that ended the query if there is one, otherwise with the error of Spark.
    """
    asked = _Asked()
    # Spark's own handler of Ctrl-C cancels all jobs, which fails the query.
    ours = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, asked) if ours else None
    try:
        while not asked.times:
            if query.awaitTermination(_LOOK):  # type: ignore[arg-type]  # it takes fractions
                return True
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


_OURS = re.compile(r"^penstock\.(?:[a-z_]+\.)*(\w+): (.*?)(?=^ ?SQLSTATE|^\s*$|^\tat |\Z)", re.MULTILINE | re.DOTALL)
_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
_LOST = re.compile(r"ExecutorLostFailure \((executor \S+) .*?\)(?: Reason: (.*))?")
_DEAD = re.compile(r"Python worker exited unexpectedly|Python worker died|PYTHON_WORKER_EXITED")


def error(exception: BaseException) -> PenstockError | None:
    """What an error of Spark means: the error of Penstock that is in it, or what is known of its kind.

    A query that fails in a worker fails in the driver with an error of Spark that has everything in it: where in Java,
    where in Python, and in between what was wrong. None: it says nothing that Penstock knows better.
    """
    if isinstance(exception, PenstockError):
        return exception
    text = str(exception)
    ours = _OURS.search(text)
    if ours is not None:
        kind = getattr(errors, ours[1], PenstockError)
        found: PenstockError = kind(ours[2].strip())
        return found
    module = _MODULE.search(text)
    if module is not None and module[1] == "penstock":
        return EngineError("the workers do not have Penstock", hint="ps.ship(spark) sends it to them")
    if module is not None and module[1] in NEEDED:
        return EngineError(f"the workers lack {module[1]}", hint=f"install it there: pip install {' '.join(NEEDED)}")
    lost = _LOST.search(text)
    if lost is not None:
        why = f": {lost[2].strip()}" if lost[2] else ""
        return EngineError(f"{lost[1]} was lost, as often as Spark lets a task fail{why}", hint=_AGAIN)
    if _DEAD.search(text):
        return EngineError(
            "a Python worker died, as often as Spark lets a task fail; it may have run out of memory", hint=_AGAIN
        )
    return None
