"""A push with many rows is divided among slots by who takes it, so that no task reads the rows of others."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.hosts.spark.parts.feed import Inputs, Share
from penstock.hosts.spark.parts.task import Assigned, Frame
from tests.spark.direct import directly, host_of

ROWS = [(i, i % 7, i) for i in range(10_000)]
DECLARE = "CREATE STREAM s (t BIGINT, k BIGINT, v BIGINT) TIMESTAMP BY t"
KEYED = "SELECT k, count(*) AS n FROM s [RANGE 100] GROUP BY k"
FILTER = "SELECT t, v FROM s WHERE v > 3"
sessions = itertools.count()


def pushed(db: penstock.Database, query: str, rows: list[tuple[int, int, int]], slack: str = "") -> Frame:
    """The entry of a push that no micro-batch has taken."""
    db.execute(f"{DECLARE} {slack}")
    db.query(query, name="it")
    db.push("s", rows)
    (frame,) = (frame for part in host_of(db).parts for _, frame in part.pending)
    return frame


def read(db: penstock.Database, frame: Frame, share: Share) -> list[tuple[Any, ...]]:
    """What a task of a new process reads of it."""
    inputs = Inputs(str(host_of(db).root), {"s": [frame]}, {}, f"process {next(sessions)}")
    batches, _ = inputs.in_turn("s", db.catalog.streams["s"].schema, Assigned("it", None, 0), share)
    return [tuple(row.values()) for batch in batches for row in batch.table.to_pylist()]


@pytest.mark.parametrize("slack", ["", "SLACK 5"])
@pytest.mark.parametrize(("query", "columns"), [(KEYED, (1,)), (FILTER, None)])
def test_a_task_reads_the_rows_of_its_slot_and_no_others(
    tmp_path: Path, query: str, columns: tuple[int, ...] | None, slack: str
) -> None:
    with directly(many=8192), penstock.connect(tmp_path, engine="spark", shards=2, trigger=3600) as db:
        frame = pushed(db, query, ROWS, slack)
        shares = [Share(slot, 2, columns, anywhere=columns is None) for slot in (0, 1)]
        first, second = (read(db, frame, share) for share in shares)
        whole = [row for row in ROWS if not slack or row[0] <= ROWS[-1][0] - 5]
        assert sorted(first + second) == whole
        assert min(len(first), len(second)) > 1_000

        path = tmp_path / frame.place.path
        content = bytearray(path.read_bytes())
        content[frame.place.stop - 100] ^= 1  # in the rows of the last slot
        path.write_bytes(content)
        assert read(db, frame, shares[0]) == first
        with pytest.raises(penstock.StorageError, match="damaged"):
            read(db, frame, shares[1])
        path.write_bytes(bytes(c if i != frame.place.stop - 100 else c ^ 1 for i, c in enumerate(content)))


def test_who_divides_otherwise_reads_all_rows_in_order(tmp_path: Path) -> None:
    with directly(many=8192), penstock.connect(tmp_path, engine="spark", shards=2, trigger=3600) as db:
        frame = pushed(db, KEYED, ROWS)
        assert frame.division is not None
        assert read(db, frame, Share()) == ROWS
        by_value = [read(db, frame, Share(slot, 2, (2,))) for slot in (0, 1)]
        assert sorted(by_value[0] + by_value[1]) == ROWS


def test_few_rows_are_not_divided(tmp_path: Path) -> None:
    with directly(many=8192), penstock.connect(tmp_path, engine="spark", shards=2, trigger=3600) as db:
        assert pushed(db, KEYED, ROWS[:100]).division is None


def test_late_rows_are_where_they_came_after_the_other_engine_has_opened_it(tmp_path: Path) -> None:
    rows = [*ROWS[:5_000], (3, 1, -1), *ROWS[5_000:], (4, 2, -2)]
    with directly(many=8192), penstock.connect(tmp_path, engine="spark", shards=3, trigger="push") as db:
        db.execute(DECLARE)
        db.query(KEYED, name="it")
        db.push("s", rows)
        found = db.queries["it"].fetch()
    with penstock.connect(engine="reference") as reference:
        reference.execute(DECLARE)
        reference.query(KEYED, name="it")
        reference.push("s", rows)
        wanted = reference.queries["it"].fetch()
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, wanted.to_pylist()))
    with penstock.connect(tmp_path, engine="local") as db:
        assert [row["v"] for row in db.late("s").to_pylist()] == [-1, -2]
