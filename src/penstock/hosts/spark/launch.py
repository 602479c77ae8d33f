"""Starting Spark's Java process with its noise in a file.

Spark and its workers write to the standard error of the Java process, much of it before any log level applies. It goes
to the file that ``PENSTOCK_SPARK_LOG`` names (``-``: the terminal), or to a temporary one that is removed when this
process ends.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pyspark import SparkConf, SparkContext

from penstock import model
from penstock.hosts.spark.internals import active_context, has_gateway, in_new_java
from penstock.model.errors import EngineError

_SHOWN = 12
"""Last lines of the log that are shown if Spark does not start."""


def started(conf: SparkConf, environment: Mapping[str, str]) -> SparkContext:
    """The running context, or a new one; ``environment``: variables of the Java process, should one be started."""
    running = active_context()
    if running is not None:
        return running
    if has_gateway():
        # Java is there from an earlier session of this process.
        return SparkContext.getOrCreate(conf)
    # Workers import what this process imports, wherever they are started: Python's first place is the script's folder.
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    places = [str(Path(model.__file__).parents[2]), *given, *(p for p in sys.path[:1] if Path(p).is_dir())]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(os.path.abspath(p) for p in places if p))
    log = _log()
    try:
        with _variables(environment):
            return in_new_java(conf, {} if log is None else {"stderr": log})
    except Exception as error:
        said = "" if log is None else _end(Path(str(log.name)))
        raise EngineError(f"Spark did not start: {_first(error)}{said}") from error


@contextmanager
def _variables(more: Mapping[str, str]) -> Iterator[None]:
    """More variables in the environment of processes that are started, which is this one's: Spark copies it."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _log() -> IO[Any] | None:
    wanted = os.environ.get("PENSTOCK_SPARK_LOG")
    if wanted == "-":
        return None
    if wanted:
        try:
            return open(wanted, "ab")
        except OSError as error:
            raise EngineError(
                f"PENSTOCK_SPARK_LOG: {wanted} cannot be written: {error.strerror}", hint="name a file, or -"
            ) from None
    number, name = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
    os.close(number)
    atexit.register(Path(name).unlink, missing_ok=True)
    return open(name, "ab")


def _first(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _end(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()[-_SHOWN:]
    except OSError:
        return ""
    return "".join(f"\n  {line}" for line in lines)
