"""What the failure of a running query means."""

from __future__ import annotations

import re

from penstock.hosts.spark.ship import NEEDED
from penstock.model import errors
from penstock.model.errors import EngineError, PenstockError

_AGAIN = "start it again with the same checkpoint location: it goes on where it was"
_OURS = re.compile(r"^penstock\.(?:[a-z_]+\.)*(\w+): (.*?)(?=^ ?SQLSTATE|^\s*$|^\tat |\Z)", re.MULTILINE | re.DOTALL)
_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
_LOST = re.compile(r"ExecutorLostFailure \((executor \S+) .*?\)(?: Reason: (.*))?")
_DEAD = re.compile(r"Python worker exited unexpectedly|Python worker died|PYTHON_WORKER_EXITED")


def is_dead(exception: BaseException) -> bool:
    """Whether a process in which a task ran has ended, again and again."""
    text = str(exception)
    return bool(_DEAD.search(text) or _LOST.search(text))


def is_to_blame(exception: BaseException) -> bool:
    """Whether a task may have ended the process. Not where Spark knows that an executor went for another reason: its
    machine was lost, or given to others."""
    text = str(exception)
    return bool(_DEAD.search(text)) or "exited caused by one of the running tasks" in text


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


def told(error: Exception) -> str:
    """The line that tells most of what Spark said."""
    lines = [re.sub("^(?:: |Caused by: )", "", line.strip()) for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"(?:[\w.]+(?:Error|Exception)): ", line)]
    return (told or lines or [type(error).__name__])[-1 if told else 0]
