"""Reading a file, or a folder of files, as tables of declared columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from penstock.io.arrow_input import read_ipc, read_parquet
from penstock.io.columns import Target, targets_for
from penstock.io.csv_input import read_csv
from penstock.io.files import Format, Leave, input_files
from penstock.io.json_input import read_json
from penstock.io.times import TimeForm
from penstock.plan.nodes import Field


def read_batches(
    path: Path,
    schema: tuple[Field, ...],
    *,
    batch_rows: int = 65_536,
    extra: tuple[Field, ...] = (),
    not_null: frozenset[str] = frozenset(),
    time: TimeForm | None = None,
    leave: Leave | None = None,
) -> Iterator[pa.Table]:
    """Tables of at most ``batch_rows`` rows with the declared columns, in the order of the file.

    Columns go by name (exactly, else whatever the case); others in the file are ignored. ``extra`` columns
    come along where the file has them; one named twice has the first of its types that fits. ``time``: how the
    declared TIMESTAMP columns are written. ``leave``: a text file may be growing; a last line of the last file that has
    no end yet is not read but told about. A path that is not there is found out at once, everything else while
    reading. Errors are ``InputError``.
    """
    format, files = input_files(Path(path))
    return _read(format, files, targets_for(schema, extra, not_null, time), batch_rows, leave)


def _read(
    format: Format, files: list[Path], targets: list[Target], batch_rows: int, leave: Leave | None
) -> Iterator[pa.Table]:
    for i, path in enumerate(files):
        after = files[i + 1 :]
        for table in _tables(format, path, targets, batch_rows, after, None if after else leave):
            for start in range(0, table.num_rows, batch_rows):
                yield table.slice(start, batch_rows)


def _tables(
    format: Format, path: Path, targets: list[Target], batch_rows: int, after: list[Path], leave: Leave | None
) -> Iterator[pa.Table]:
    match format:
        case Format.CSV:
            return read_csv(path, targets, leave)
        case Format.JSON:
            return read_json(path, targets, batch_rows, after, leave)
        case Format.PARQUET:
            return read_parquet(path, targets, batch_rows)
        case Format.ARROW:
            return read_ipc(path, targets)
