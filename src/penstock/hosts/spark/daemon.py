"""Spark's daemon, from which it forks its Python workers, with what tasks import imported before the first fork.

Importing the operators takes a worker seconds, and Spark ends workers that have been idle for a minute. A worker that
is forked from this daemon has them at once, and shares their memory with the others. Spark has a daemon for each of its
own worker modules; only the one that runs tasks imports anything. ``session`` chooses this daemon with a master
``local…``, whose workers find the modules that the driver finds.

Spark's own daemon is not offered to the public. It is used here and not in ``internals``, which imports all of PySpark:
what is imported before the first fork is chosen here. Its test is the first of tests/spark/test_internals.py.

A fork copies no other thread. Those here are jemalloc's and OpenBLAS's, which are prepared for that.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from contextlib import suppress

from pyspark.daemon import manager

_TASKS = "pyspark.worker"
_IMPORTED = (_TASKS, "penstock.hosts.spark.parts.working", "penstock.hosts.spark.parts.inflow")


def begun() -> None:
    """Import what tasks need, and fork workers until Spark ends this process."""
    if sys.argv[1:2] in ([], [_TASKS]):
        for module in _IMPORTED:
            with suppress(Exception):  # the task that needs it says why it cannot be imported
                importlib.import_module(module)
        with suppress(ImportError):
            import numpy as np

            os.register_at_fork(after_in_child=np.random.seed)  # or all workers would draw the same numbers
        gc.freeze()  # workers' collectors pass over it, and so do not copy it
    manager()


if __name__ == "__main__":
    begun()
