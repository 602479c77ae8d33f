"""What the footers of Parquet files tell of a stream, so that its rows are read only when they are answered.

Where no query remembers a row, all that a micro-batch must store before its first answer is how far the stream comes
with it, and the footers say that. So tasks read rows while Spark takes earlier answers, and none reads all of them.

Where tasks stand side by side, each has the footers of all files, and its own share of the rows (``shared``): all of
them know how far the stream comes, without a word to each other. Shares are row groups as long as these are small
enough; a larger one is read by several tasks, and each gives away its part of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from penstock.hosts.spark.files import as_columns, parquet_file
from penstock.hosts.spark.job import FileColumn, Source
from penstock.hosts.spark.rows import ROWS_AT_ONCE, Unread
from penstock.hosts.spark.scatter import declared, ends_of
from penstock.model.errors import InputError

_UNEVEN = 8
"""A share may be this part of its size larger or smaller, so that no row group is read twice."""


@dataclass(frozen=True)
class RowGroup:
    """The rows ``since`` … ``until - 1`` of a row group, which has none before ``first`` and none after ``last``."""

    path: str
    number: int
    since: int
    until: int
    first: int
    last: int

    @property
    def rows(self) -> int:
        return self.until - self.since


def told(files: Sequence[str], source: Source) -> tuple[list[RowGroup], list[str]]:
    """The row groups of files, and the files whose footers do not tell that the time of each row can be used."""
    first, last = ends_of(source)
    found: list[RowGroup] = []
    left: list[str] = []
    for path in files:
        groups = _row_groups(path, source)
        if groups is None or any(g.first < first or g.last > last for g in groups):
            left.append(path)
        else:
            found += groups
    return found, left


def shared(groups: Sequence[RowGroup], place: int, shares: int) -> list[RowGroup]:
    """The share of the task ``place``, one of ``shares``; each row is in one share."""
    begin, end = (_begin(groups, i, shares) for i in (place, place + 1))
    found: list[RowGroup] = []
    at = 0
    for group in groups:
        since, until = max(begin - at, 0), min(end - at, group.rows)
        if since < until:
            found.append(replace(group, since=group.since + since, until=group.since + until))
        at += group.rows
    return found


def _begin(groups: Sequence[RowGroup], place: int, shares: int) -> int:
    """The row with which a share begins: the first of a row group, if one is near."""
    borders = [0, *accumulate(g.rows for g in groups)]
    wanted = borders[-1] * place // shares
    nearest = min(borders, key=lambda border: abs(border - wanted))
    is_near = 0 < place < shares and abs(nearest - wanted) * shares * _UNEVEN <= borders[-1]
    return nearest if is_near else wanted


def unread(groups: Sequence[RowGroup], source: Source) -> Unread:
    """The rows of row groups, which are read when they are asked for."""
    columns = source.files
    assert columns is not None

    def tables() -> Iterator[pa.Table]:
        for group in groups:
            for rows in _read(group, columns):
                table = declared([rows], source)
                times = table.column(source.timestamp)
                least, greatest = pc.min_max(times.chunk(0).view(pa.int64())).as_py().values()
                if times.null_count or least < group.first or greatest > group.last:
                    raise InputError(
                        f"{group.path}: its footer tells of other times than there are in the file",
                        hint="write the file again, or say files=False, and Spark reads the files",
                    )
                yield table

    first = min((g.first for g in groups), default=0)
    return Unread(sum(g.rows for g in groups), first, tables)


def _read(group: RowGroup, columns: Sequence[FileColumn]) -> Iterator[pa.RecordBatch]:
    """Some of the rows at a time, each read when it is asked for."""
    at = 0
    with parquet_file(group.path, columns) as (file, names):
        for batch in file.iter_batches(ROWS_AT_ONCE, [group.number], names):
            since, until = max(group.since - at, 0), min(group.until - at, batch.num_rows)
            at += batch.num_rows
            if since < until:
                rows = pa.Table.from_batches([batch.slice(since, until - since)]).select(names)
                yield from as_columns(rows, columns).combine_chunks().to_batches()
            if at >= group.until:
                return


def _row_groups(path: str, source: Source) -> list[RowGroup] | None:
    """What the footer of a file tells; None where it does not tell all of it, or tells that a time is NULL."""
    assert source.files is not None
    assert source.timestamp is not None
    with parquet_file(path, source.files) as (file, names):
        name = names[source.timestamp]
        leaf = next(i for i in range(len(file.schema)) if file.schema.column(i).path == name)
        ticks = 1_000 if getattr(file.schema_arrow.field(name).type, "unit", "us") == "ms" else 1
        found: list[RowGroup] = []
        for i in range(file.num_row_groups):
            group = file.metadata.row_group(i)
            if not group.num_rows:
                continue
            said = group.column(leaf).statistics
            known = said is not None and said.has_min_max and said.has_null_count and not said.null_count
            if not known or said.physical_type != "INT64":
                return None
            found.append(RowGroup(path, i, 0, group.num_rows, said.min_raw * ticks, said.max_raw * ticks))
    return found
