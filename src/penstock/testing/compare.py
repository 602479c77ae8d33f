"""Comparing answers, and saying what is different."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from rich.cells import cell_len

from penstock.testing.expected import Row, Rows
from penstock.testing.matching import Tolerance, unmatched

MOST = 20
"""So many rows of a difference are shown."""


def difference(got: Rows, wanted: Rows, tolerance: Tolerance, *, ordered: bool = True) -> str | None:
    """What is different, or None. The order within an instant does not matter; ``ordered``: that of instants does."""
    got = _without_nan(got, wanted.nan_is_null)
    missing, unexpected = unmatched(got.rows, wanted.rows, tolerance, has_ts=wanted.has_ts)
    if missing or unexpected:
        right = len(got.rows) - len(unexpected)
        head = f"{right} as expected, {len(missing)} missing, {len(unexpected)} not expected"
        return "\n".join([head, *_table(got, missing, unexpected, wanted.has_ts), *_near(got, missing, unexpected)])
    if ordered:
        return _misplaced(got, wanted, tolerance)
    return None


def _without_nan(got: Rows, columns: frozenset[str]) -> Rows:
    """The rows with NULL in the place of NaN in these columns; people still read NaN."""
    names = [name for name in got.schema.names if name not in ("ts", "op")]
    if columns.isdisjoint(names):
        return got
    one = [name in columns for name in names]
    rows = [replace(r, values=tuple(_nan_as_null(v) if o else v for v, o in zip(r.values, one, strict=True)))
            for r in got.rows]  # fmt: skip
    return replace(got, rows=rows)


def _nan_as_null(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(map(_nan_as_null, value))
    return None if isinstance(value, float) and math.isnan(value) else value


def _misplaced(got: Rows, wanted: Rows, tolerance: Tolerance) -> str | None:
    start = 0
    for _, rows in groupby(got.rows, key=lambda row: row.ts):
        instant = list(rows)
        here = wanted.rows[start : start + len(instant)]
        early, late = unmatched(instant, here, tolerance, has_ts=wanted.has_ts)
        if early:
            lines = ["the same answers, but instants come in another order:"]
            return "\n".join([*lines, *_table(got, early[:1], late[:1], wanted.has_ts, ("expected", "got"))])
        start += len(instant)
    return None


# -- for people -------------------------------------------------------------------------------------------


def _table(
    got: Rows, missing: Sequence[Row], unexpected: Sequence[Row], has_ts: bool,
    words: tuple[str, str] = ("missing", "not expected"),
) -> list[str]:  # fmt: skip
    """Rows under the names of their columns, by instant; each says what is with it."""
    marked = [(words[0], row) for row in missing] + [(words[1], row) for row in unexpected]
    if has_ts:
        marked.sort(key=lambda m: 0 if m[1].ts is None else m[1].ts)
    head = [name for name in ("ts", "op") if name in got.schema.names]
    skip = 2 - len(head)
    names = ["", *head, *(name for name in got.schema.names if name not in ("ts", "op"))]
    lines = [names, *([word, *row.cells[skip:]] for word, row in marked[:MOST])]
    widths = [max(cell_len(line[i]) for line in lines) for i in range(len(names))]
    shown = ["  " + "  ".join(_padded(c, w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    return shown + ([f"  … and {len(marked) - MOST} more"] if len(marked) > MOST else [])


def _padded(cell: str, width: int) -> str:
    return cell.replace("\n", "\\n") + " " * (width - cell_len(cell))


def _near(got: Rows, missing: Sequence[Row], unexpected: Sequence[Row]) -> list[str]:
    """Of missing rows, the row that was given in their place: it differs in one thing only."""
    names = ["ts", "op", *(name for name in got.schema.names if name not in ("ts", "op"))]
    left = list(unexpected)
    lines = []
    for row in missing[:MOST]:
        for other in left:
            differs = list(_differences(row, other))
            if len(differs) == 1 and (len(row.values) > 1 or differs[0] < 2 or other.ts == row.ts):
                left.remove(other)
                at = differs[0]
                lines.append(f"  near: {_shown(row)} came with {names[at]} {other.cells[at]}, not {row.cells[at]}")
                break
    return lines


def _differences(wanted: Row, got: Row) -> Iterable[int]:
    for i, (a, b) in enumerate(zip(wanted.cells, got.cells, strict=True)):
        if a != b and not (i == 0 and wanted.ts is None) and not (i == 1 and wanted.op is None):
            yield i


def _shown(row: Row) -> str:
    return " ".join(cell for cell in row.cells if cell)
