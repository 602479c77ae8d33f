"""What the whole suite shares."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from penstock.hosts.options import ENGINES
from tests import counting, following
from tests.budget import SEED, examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Generated tests repeat themselves, so that a change is judged by what it changes; `make fuzz` looks for new cases,
# and so do a few tests of every run (tests/generated/test_exploring.py).
# Those that do not say how many examples they have, have a share of 100.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=examples(100))
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=examples(100))
settings.load_profile(os.environ.get("PENSTOCK_HYPOTHESIS", "repeatable"))

# Tests that do not say which engine they mean are not about engines; on Spark each call returns with its answers.
os.environ["PENSTOCK_ENGINE"] = "local"
os.environ["PENSTOCK_TRIGGER"] = "push"
# A Java that lives for minutes does not earn back what its second compiler costs.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

ROOT = Path(__file__).parents[1]
ON_SPARK = pytest.mark.xdist_group("spark")
"""Tests that need Spark go to one worker, so that there is one session."""
ONE_OF = int(os.environ.get("PENSTOCK_ONE_OF", "1" if os.environ.get("PENSTOCK_ALL_ON_SPARK") else "40"))
"""Of so many tests with the engine ``spark`` one has Spark itself; for the others its tasks run in this process."""
ON_CLUSTER = bool(os.environ.get("PENSTOCK_ON_CLUSTER"))
"""Whether that is a cluster of separate processes."""


def pytest_configure() -> None:
    """A shell that runs the tests in the background lets them ignore Ctrl-C, which some of them send themselves."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        sampled = params.get("engine") == "spark" and zlib.crc32(item.nodeid.encode()) % ONE_OF == 0
        if sampled or "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(ON_SPARK)
    following.choose(items)


def pytest_collection_finish() -> None:
    """Spare the garbage collector the half a million objects of the modules and the tests, which stay to the end."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with following.unfollowed(item):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with following.by_example(item), counting.counted(item):
        yield


def pytest_report_header() -> str:
    return f"seed of the tests that explore: PENSTOCK_SEED={SEED} repeats them"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.verbosity < 0:  # then there is no header
        terminalreporter.write_line(pytest_report_header())


def pytest_sessionfinish() -> None:
    counting.write()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every engine that can run the behavioural suite."""
    name = str(request.param)
    if name != "spark":
        yield name
    elif request.node.get_closest_marker("xdist_group"):
        request.getfixturevalue("spark")
        yield name
    else:
        from tests.spark.direct import directly

        with directly():
            yield name


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests. Workers find Penstock, and these tests, where this process found them.

    A task may fail once. With ``PENSTOCK_ON_CLUSTER`` the session is one of a cluster with two one-core workers.
    """
    import penstock.spark as ps

    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    with contextlib.ExitStack() as stack:
        master, settings = "local[2,2]", {"spark.sql.shuffle.partitions": "2"}
        if ON_CLUSTER:
            from tests.spark.standalone import SETTINGS, standalone

            master = stack.enter_context(standalone(tmp_path_factory.mktemp("cluster"))).master
            settings |= SETTINGS
        session = ps.session(master, settings=settings)
        yield session
        session.stop()
