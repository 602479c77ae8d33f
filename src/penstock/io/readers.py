"""Reading a file, or a folder of files, as tables of declared columns."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.io.arrow_input import read_ipc, read_parquet
from penstock.io.csv_input import read_csv
from penstock.io.files import Format, Leave, Source, input_files, on_disk
from penstock.io.json_input import read_json
from penstock.model.schema import Field
from penstock.rows.apart import OnError, Rows, Sieve, Unknown
from penstock.rows.columns import targets_for
from penstock.rows.times import TimeForm


def read_rows(
    path: Source,
    schema: tuple[Field, ...],
    *,
    batch_rows: int = 65_536,
    extra: tuple[Field, ...] = (),
    not_null: frozenset[str] = frozenset(),
    time: TimeForm | None = None,
    leave: Leave | None = None,
    on_error: OnError = "refuse",
    unknown: Unknown = "ignore",
    check: Callable[[pa.Table], None] | None = None,
    options: bool = True,
) -> Generator[Rows, None, None]:
    """At most ``batch_rows`` rows at a time with the declared columns, in the order of the file.

    Columns go by name (exactly, else whatever the case); ``unknown``: what becomes of others in the file. ``extra``
    columns come along where the file has them; one named twice has the first of its types that fits. ``time``: how the
    declared TIMESTAMP columns are written. ``leave``: a text file may be growing; a last line of the last file that has
    no end yet is not read but told about. ``on_error``: what becomes of a row that does not fit, ``check`` included,
    which raises BadRow; where reading stops at one, the last rows say so. ``options``: a hint may name ``WITH (…)``. A
    path that is not there is found out at once, everything else while reading. Errors are ``InputError``.
    """
    format, files = input_files(path)
    sieve = row_sieve(
        str(path), schema, extra=extra, not_null=not_null, time=time, on_error=on_error, unknown=unknown, check=check,
        options=options,
    )  # fmt: skip
    return _read(format, files, sieve, batch_rows, leave)


def row_sieve(
    where: str,
    schema: tuple[Field, ...],
    *,
    extra: tuple[Field, ...] = (),
    not_null: frozenset[str] = frozenset(),
    time: TimeForm | None = None,
    on_error: OnError = "refuse",
    unknown: Unknown = "ignore",
    check: Callable[[pa.Table], None] | None = None,
    options: bool = True,
) -> Sieve:
    """What rows are brought to the declared columns with; the arguments are those of ``read_rows``."""
    nothing = pa.schema([(f.name, f.type.arrow) for f in schema]).empty_table()
    targets = targets_for(schema, extra, not_null, time, options=options)
    return Sieve(where, targets, nothing, on_error, unknown, check)


def read_batches(
    path: Source,
    schema: tuple[Field, ...],
    *,
    batch_rows: int = 65_536,
    extra: tuple[Field, ...] = (),
    not_null: frozenset[str] = frozenset(),
    time: TimeForm | None = None,
    on_error: OnError = "refuse",
) -> Generator[pa.Table, None, None]:
    """The rows of ``read_rows`` that fit, as tables."""
    found = read_rows(
        path, schema, batch_rows=batch_rows, extra=extra, not_null=not_null, time=time, on_error=on_error
    )
    return (rows.table for rows in found)


def _read(
    format: Format, files: Sequence[Source], sieve: Sieve, batch_rows: int, leave: Leave | None
) -> Generator[Rows, None, None]:
    for i, path in enumerate(files):
        after = files[i + 1 :]
        mine = replace(sieve, where=str(path))
        for rows in _pieces(format, path, mine, batch_rows, after, None if after else leave):
            for start in range(0, max(1, len(rows)), batch_rows):
                yield rows.slice(start, batch_rows)
            if rows.stopped is not None:
                return


def _pieces(
    format: Format, path: Source, sieve: Sieve, batch_rows: int, after: Sequence[Source], leave: Leave | None
) -> Iterator[Rows]:
    match format:
        case Format.CSV:
            return read_csv(path, sieve, leave)
        case Format.JSON:
            return read_json(path, sieve, batch_rows, after, leave)
        case Format.PARQUET:
            return read_parquet(on_disk(path), sieve, batch_rows)
        case Format.ARROW:
            return read_ipc(on_disk(path), sieve)
