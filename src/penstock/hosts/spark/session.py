"""A Spark session with the settings that make micro-batches short, and a word where Java is missing."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from penstock.hosts.spark.internals import active_context, check_classic, executors
from penstock.hosts.spark.launch import started
from penstock.hosts.spark.parts.grouping import allocations
from penstock.hosts.spark.ship import ship
from penstock.model.errors import EngineError, InputError
from penstock.scalar.zones import checked

TRIED = (4, 2), (4, 3)
"""The minors of Spark that the tests were run with. In none before them a streaming source in Python says itself how
much a micro-batch takes."""
JAVA = 17
"""The oldest Java that Spark 4 runs on."""
_HOW = f"Spark needs Java {JAVA} or later, on Debian: apt install openjdk-{JAVA}-jre-headless; or set JAVA_HOME"

TIME_ZONE = "spark.sql.session.timeZone"

_UNSEEN = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Spark has looked whether a value is NULL before it asks for it, and asks for rows that are there."""

SETTINGS: Mapping[str, str] = {
    # The UI is for looking; ``loopback`` decides where it listens. A port that is taken is passed over.
    "spark.ui.killEnabled": "false",
    "spark.port.maxRetries": "1000",
    "spark.ui.showConsoleProgress": "false",
    # A Python worker is 35 ms nearer through a socket of the machine itself.
    "spark.python.unix.domain.socket.enabled": "true",
    # Fewer files and renames for each micro-batch; what Spark writes still appears in one step.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Rows are cut into shards by thousands; ten thousand at a time is too few to be worth a call.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # Java looks at each value that comes from Python twice before it takes it: is it there, and is it in the buffer.
    "spark.driver.defaultJavaOptions": _UNSEEN,
    "spark.executor.defaultJavaOptions": _UNSEEN,
    TIME_ZONE: "UTC",
    # Jobs of several threads share the cores, by the weight of their pools: see ``pools``.
    "spark.scheduler.mode": "FAIR",
}

LOCAL_SETTINGS: Mapping[str, str] = {"spark.python.daemon.module": "penstock.hosts.spark.daemon"}
"""More of them with a master ``local…``, whose workers find the modules that this process finds."""

LOOPBACK = "127.0.0.1"
_STANDALONE = re.compile(r"spark://([^:/,]+|\[[^\]]+\])(?::(\d+))?")


def listening(master: str, settings: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Settings, and variables of the Java process, that let Spark's UI listen on this machine's loopback address only.

    ``SPARK_LOCAL_IP`` is the one thing that the UI heeds. It is also the address that a driver tells its executors,
    unless it has another: on a standalone cluster the one from which its master is reached. For other masters it is not
    known, so the UI is off.
    """
    if "SPARK_LOCAL_IP" in os.environ:
        return {}, {}
    if re.match(r"local(-cluster)?(\[|$)", master):
        return {}, {"SPARK_LOCAL_IP": LOOPBACK}
    found = _STANDALONE.match(master)
    if found is None:
        return {"spark.ui.enabled": "false"}, {}
    own = settings.get("spark.driver.host") or _address_towards(found[1].strip("[]"), int(found[2] or 7077))
    if own is None:
        return {"spark.ui.enabled": "false"}, {}
    return {"spark.driver.host": own}, {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_PUBLIC_DNS": "localhost"}


def _address_towards(host: str, port: int) -> str | None:
    """This machine's address in the network in which another is; nothing is sent."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return None


MASTER = "local[*,4]"
"""All cores of this machine. A task may fail three times, as on a cluster; with ``local[*]`` one failure is the end."""


def session(master: str = MASTER, *, name: str = "penstock", settings: Mapping[str, str] | None = None) -> SparkSession:
    """The running Spark session, or a new one with our settings, those given here above them.

    The workers of a cluster are sent Penstock if they lack it. Spark's UI (``spark.sparkContext.uiWebUrl``) listens on
    this machine's loopback address; ``{"spark.ui.enabled": "false"}`` turns it off.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        check_classic(running)
        return running
    if active_context() is None:
        check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    more = dict(settings or {})
    where, environment = listening(more.get("spark.master", master), more)
    if re.match(r"local(\[|$)", more.get("spark.master", master)):
        where |= LOCAL_SETTINGS
    with pools() as file:
        chosen = {
            "spark.master": master, "spark.app.name": name, **SETTINGS, **where,
            "spark.scheduler.allocation.file": file, **more,
        }  # fmt: skip
        context = started(SparkConf().setAll(list(chosen.items())), environment)
    context.setLogLevel("ERROR")
    if _STANDALONE.match(chosen["spark.master"]) and context.getConf().get(_DYNAMIC, "false") != "true":
        await_executors(context)
    spark = SparkSession.builder.getOrCreate()
    try:
        ship(spark)
    except EngineError:
        spark.stop()
        raise
    return spark


def await_executors(context: SparkContext) -> None:
    """Wait until executors have come, and no more come.

    They come one after the other, and what is asked once, how many cores there are and whether all machines have
    Penstock, is to be asked of all of them. Spark's settings for this (``spark.scheduler.minRegisteredResourcesRatio``)
    need to be told on such a cluster how many there will be.
    """
    until = time.monotonic() + _AWAITED
    before, since = 0, time.monotonic()
    while time.monotonic() < until:
        now = executors(context)
        if now != before:
            before, since = now, time.monotonic()
        if now and time.monotonic() - since > _QUIET:
            return
        time.sleep(_LOOK)


_DYNAMIC = "spark.dynamicAllocation.enabled"
"""With this executors come when there are tasks."""
_AWAITED, _QUIET, _LOOK = 15.0, 1.0, 0.05
"""Seconds: how long executors are awaited at most, after how many no more are expected, and between looks."""


def session_zone(spark: SparkSession | None, chosen: str | None = None) -> str:
    """The time zone of a session, or the one that is chosen for it; of none, that of our settings."""
    name = chosen or (SETTINGS[TIME_ZONE] if spark is None else spark.conf.get(TIME_ZONE))
    try:
        return checked(name, InputError)
    except InputError as error:
        error.message = f"{TIME_ZONE}: {error.message}"
        raise


@contextmanager
def pools() -> Iterator[str]:
    """A file with the pools of Spark's scheduler, which reads it when it starts and never again."""
    with tempfile.NamedTemporaryFile("w", prefix="penstock-pools-", suffix=".xml") as file:
        file.write(allocations())
        file.flush()
        yield Path(file.name).as_uri()


def check_release() -> None:
    """Refuse a release of Spark whose streaming sources in Python lack what a database needs, and warn of one that was
    not tried."""
    found = tuple(int(n) for n in re.findall(r"\d+", pyspark.__version__)[:2])
    (first, *_, last), tried = TRIED, " and ".join(f"{major}.{minor}" for major, minor in TRIED)
    install = f"pip install 'pyspark>={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}'"
    if found < first:
        raise EngineError(
            f"this is Spark {pyspark.__version__}, and Penstock needs {first[0]}.{first[1]} or later",
            hint=f"{install}; engine='local' needs no Spark",
        )
    if found not in TRIED:
        warnings.warn(
            f"this is Spark {pyspark.__version__}, and Penstock was tried with {tried}; "
            f"should something fail: {install}",
            stacklevel=2,
        )


def check_java() -> None:
    """Refuse to start without a Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"there is none in JAVA_HOME ({home})" if home else "there is none on the PATH"
        raise EngineError(f"Java was not found: {where}", hint=_HOW)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said.stderr + said.stdout)
    # Java 8 called itself 1.8.
    version = 0 if found is None else int(found[2] or 0) if found[1] == "1" else int(found[1])
    if version < JAVA:
        raise EngineError(f"{java} is Java {version or 'of an unknown version'}", hint=_HOW)
