"""Many threads at work on one database on Spark itself, for a minute and more: see ``tests.durable.threads``."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import ON_CLUSTER
from tests.durable.threads import work
from tests.spark.test_kills import KILLS


@pytest.mark.skipif(KILLS == 1 and not ON_CLUSTER, reason="it takes minutes: make kills and make cluster run it")
@pytest.mark.timeout(1200)
def test_many_threads_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    work(tmp_path, 900, pause=0.05, engine="spark", trigger=0)
