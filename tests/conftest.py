"""What the whole suite shares."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from penstock.hosts import ENGINES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Generated tests repeat themselves, so that a change is judged by what it changes; `make fuzz` looks for new cases.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("PENSTOCK_HYPOTHESIS", "repeatable"))

# Tests that do not say which engine they mean are not about engines; on Spark each call returns with its answers.
os.environ["PENSTOCK_ENGINE"] = "local"
os.environ["PENSTOCK_TRIGGER"] = "push"

ROOT = Path(__file__).parents[1]
ON_SPARK = pytest.mark.xdist_group("spark")
"""Tests that need Spark go to one worker, so that there is one session."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(ON_SPARK)


@pytest.fixture(params=[pytest.param(e, marks=ON_SPARK) if e == "spark" else e for e in ENGINES])
def engine(request: pytest.FixtureRequest) -> str:
    """Every engine that can run the behavioural suite."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return str(request.param)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests. Workers find Penstock, and these tests, where this process found them.

    A task may fail once.
    """
    import penstock.spark as ps

    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    session = ps.session("local[2,2]", settings={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
