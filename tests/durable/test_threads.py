"""Many threads push, read, listen, register and stop queries, set how the work is done and save, on one directory:
afterwards every row is in every answer once, and so it is when the directory is opened again. On Spark's host its tasks
are done in this process; ``make kills`` lets the threads work for a minute on Spark itself."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from penstock.storage.store import Sync
from tests.budget import examples
from tests.durable.threads import work
from tests.spark.direct import directly


@pytest.mark.parametrize("sync", ["off", "group"])
@pytest.mark.parametrize("host", ["local", "spark"])
def test_many_threads_on_one_directory(tmp_path: Path, host: str, sync: Sync) -> None:
    with directly() if host == "spark" else nullcontext():
        options = {"shards": 2, "trigger": 0} if host == "spark" else {}
        work(tmp_path, examples(90), engine=host, sync=sync, **options)
