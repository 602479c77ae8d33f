"""Supply layers that are compared with the runtime's: they change when, never what."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.support.common import database
from experiments.papers.architectures import MORE, TABLE, Configuration
from experiments.supply import LockedBuffer, MonitoredBuffer

from penstock.database.database import core_of
from penstock.hosts.local.host import LocalHost
from penstock.runtime.buffer import Buffer

KINDS: dict[str, type[Buffer]] = {"V1": MonitoredBuffer, "synch": LockedBuffer, "V2": Buffer}


@functools.cache
def answers(how: Configuration | None) -> list[tuple[int, ...]]:
    values = np.random.default_rng(1).integers(0, 101, 400)
    with database("gen1", "gen2") as db:
        query = db.query("SELECT ISTREAM a.v, b.v FROM gen1 [ROWS 5] AS a, gen2 [ROWS 5] AS b WHERE a.v < b.v")
        if how is not None:
            host = core_of(db).host
            assert isinstance(host, LocalHost)
            db.configure(**how.settings)
            made = {type(buffer) for buffer in host.runtime.all_buffers.values()}
            assert made == {KINDS[how.supply]}
        for i, value in enumerate(values):
            db.push("gen1" if i % 2 == 0 else "gen2", pa.table({"ts": [i], "v": [int(value)]}))
        found = query.fetch()
    return list(zip(*(found[name].to_pylist() for name in found.column_names), strict=True))


@pytest.mark.parametrize("how", [*TABLE, *MORE], ids=lambda how: how.name)
def test_every_configuration_answers_the_same(how: Configuration) -> None:
    assert answers(how) == answers(None)
