"""A task of Spark's: what is told as bytes is done, and what is said of it is bytes."""

from __future__ import annotations

import pickle

import pyarrow as pa

from penstock.hosts.spark.parts.slot import run_task
from penstock.hosts.spark.parts.task import Report, Task, Trouble, failure_of
from penstock.hosts.spark.worker import RELEASE, check_release, prepare, settle
from penstock.model.errors import EngineError

_SCHEMA = pa.schema([("slot", pa.int32()), ("report", pa.binary())])


def told(task: Task, release: str = RELEASE) -> bytes:
    """A task for a worker, which must be of the same release."""
    return pickle.dumps((release, task.slot, task.version, pickle.dumps(task)))


def worked(content: bytes) -> pa.RecordBatch:
    """Do a task, in a worker of Spark."""
    prepare()
    report = done(content)
    settle()
    return pa.RecordBatch.from_arrays(
        [pa.array([report.slot], pa.int32()), pa.array([pickle.dumps(report)], pa.binary())], schema=_SCHEMA
    )


def done(content: bytes) -> Report | Trouble:
    """Do a task."""
    release, slot, version, inside = pickle.loads(content)
    try:
        check_release(release)
    except EngineError as error:
        return Trouble(slot, version, failure_of(error))
    return run_task(pickle.loads(inside))


def said(content: bytes) -> Report | Trouble:
    """What a worker has said."""
    found: Report | Trouble = pickle.loads(content)
    return found


def task_of(content: bytes) -> Task:
    """What was told."""
    found: Task = pickle.loads(pickle.loads(content)[3])
    return found
