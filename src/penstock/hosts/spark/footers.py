"""How far a stream comes with new Parquet files, and its rows only when they are answered.

Where no query remembers a row, all that a micro-batch must store before its first answer is how far the stream comes
with it. The footers of the files say that, or, where they have no statistics of times, the column of times. So tasks
read rows while Spark takes earlier answers.

Where tasks stand side by side, each looks at all files, and has its own share of the rows (``shared``): all of them
know how far the stream comes, without a word to each other. Shares are row groups as long as these are small enough;
a larger one is decoded from its beginning by several tasks, each of which gives away its part of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby

import pyarrow as pa
import pyarrow.compute as pc

from penstock.hosts.spark.files import as_columns, parquet_file
from penstock.hosts.spark.job import FileColumn, Source
from penstock.hosts.spark.rows import ROWS_AT_ONCE, Unread
from penstock.hosts.spark.scatter import ends_of, gathered, ticks_of
from penstock.model.errors import InputError

_UNEVEN = 8
"""Either end of a share may move by this part of its size, so that no row group is decoded twice."""
_AT_ONCE = 8
"""Files that are looked at at once: those of an object store answer late."""


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
    """The row groups of files, and the files in which the time of some row cannot be used."""
    first, last = ends_of(source)
    found: list[RowGroup] = []
    left: list[str] = []
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        looked_at = threads.map(lambda path: _row_groups(path, source), files)
        for path, groups in zip(files, looked_at, strict=True):
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
    """The rows of row groups, which are read when they are asked for, about ``ROWS_AT_ONCE`` at a time."""
    columns = source.files
    assert columns is not None
    first, last = min((g.first for g in groups), default=0), max((g.last for g in groups), default=0)

    def tables() -> Iterator[pa.Table]:
        files = (_read(path, list(of_file), columns) for path, of_file in groupby(groups, lambda g: g.path))
        for table in gathered(chain.from_iterable(files), source, ROWS_AT_ONCE):
            times = table.column(source.timestamp)
            least, greatest = pc.min_max(ticks_of(times)).as_py().values()
            if times.null_count or least < first or greatest > last:
                raise _is_other(groups, "it has rows of other times than its footer tells of")
            yield table

    return Unread(sum(g.rows for g in groups), first, tables)


def _read(path: str, groups: Sequence[RowGroup], columns: Sequence[FileColumn]) -> Iterator[pa.RecordBatch]:
    """The rows of row groups that follow each other in a file; what is not asked for is not read."""
    skip, left = groups[0].since, sum(g.rows for g in groups)
    with parquet_file(path, columns) as (file, names):
        for batch in file.iter_batches(ROWS_AT_ONCE, [g.number for g in groups], names):
            rows = batch.slice(skip, left)
            skip = max(skip - len(batch), 0)
            left -= len(rows)
            if len(rows):
                yield from as_columns(pa.Table.from_batches([rows]).select(names), columns).to_batches()
            if not left:
                return
    raise _is_other(groups, f"it has {left} rows less than its footer told of")


def _is_other(groups: Sequence[RowGroup], what: str) -> InputError:
    files = ", ".join(dict.fromkeys(g.path for g in groups))
    return InputError(f"{files}: {what}", hint="write the file again, or say files=False, and Spark reads the files")


def _row_groups(path: str, source: Source) -> list[RowGroup] | None:
    """What a file has; None if a time in it is NULL."""
    assert source.files is not None
    assert source.timestamp is not None
    with parquet_file(path, source.files) as (file, names):
        name = names[source.timestamp]
        leaf = next(i for i in range(len(file.schema)) if file.schema.column(i).path == name)
        scale = 1_000 if getattr(file.schema_arrow.field(name).type, "unit", "us") == "ms" else 1
        found: list[RowGroup] = []
        for i in range(file.num_row_groups):
            group = file.metadata.row_group(i)
            said = group.column(leaf).statistics
            if not group.num_rows:
                continue
            if said is None or not (said.has_min_max and said.has_null_count) or said.physical_type != "INT64":
                times = as_columns(file.read_row_group(i, [name]), [source.files[source.timestamp]]).column(0)
                nulls, ends = times.null_count, tuple(pc.min_max(ticks_of(times)).as_py().values())
            else:
                nulls, ends = said.null_count, (said.min_raw * scale, said.max_raw * scale)
            if nulls:
                return None
            found.append(RowGroup(path, i, 0, group.num_rows, *ends))
    return found

