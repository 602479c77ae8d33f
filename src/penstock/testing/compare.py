"""Comparing answers, and saying what is different."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len

from penstock.testing.expected import Row, Rows

MOST = 20
"""So many rows of a difference are shown."""


@dataclass(frozen=True)
class Tolerance:
    """How far floating-point numbers may be apart: as a part of the greater one, or absolutely."""

    relative: float = 1e-9
    absolute: float = 1e-12

    def same(self, a: object, b: object) -> bool:
        """Equal, and for floating-point numbers nearly so; NaN equals NaN, NULL equals NULL."""
        if isinstance(a, float) and isinstance(b, float):
            if math.isnan(a) or math.isnan(b):
                return math.isnan(a) and math.isnan(b)
            return math.isclose(a, b, rel_tol=self.relative, abs_tol=self.absolute)
        if isinstance(a, tuple) and isinstance(b, tuple):
            return len(a) == len(b) and all(self.same(x, y) for x, y in zip(a, b, strict=True))
        return a == b


def difference(got: Rows, wanted: Rows, tolerance: Tolerance, *, ordered: bool = True) -> str | None:
    """What is different, or None. The order within an instant does not matter; ``ordered``: that of instants does."""
    missing, unexpected = unmatched(got.rows, wanted.rows, tolerance)
    if missing or unexpected:
        right = len(got.rows) - len(unexpected)
        head = f"{right} as expected, {len(missing)} missing, {len(unexpected)} not expected"
        return "\n".join([head, *_table(got, missing, unexpected, wanted.has_ts), *_near(got, missing, unexpected)])
    if ordered:
        return _misplaced(got, wanted, tolerance)
    return None


def unmatched(got: Sequence[Row], wanted: Sequence[Row], tolerance: Tolerance) -> tuple[list[Row], list[Row]]:
    """The rows of ``wanted`` that are missing, and those of ``got`` that nobody wanted."""
    by_place: dict[object, list[Row]] = defaultdict(list)
    with_ts = not wanted or wanted[0].ts is not None
    for row in got:
        by_place[row.ts if with_ts else None].append(row)
    missing = []
    later = []
    for row in wanted:  # what is the same to the last digit first, so that nothing near takes its place
        left = by_place[row.ts]
        place = next((i for i, other in enumerate(left) if other.values == row.values and _same_op(other, row)), None)
        if place is None:
            later.append(row)
        else:
            del left[place]
    for row in later:
        left = by_place[row.ts]
        place = next((i for i, other in enumerate(left) if _same(other, row, tolerance)), None)
        if place is None:
            missing.append(row)
        else:
            del left[place]
    unwanted = {id(row) for left in by_place.values() for row in left}
    return missing, [row for row in got if id(row) in unwanted]


def _same(got: Row, wanted: Row, tolerance: Tolerance) -> bool:
    return _same_op(got, wanted) and tolerance.same(got.values, wanted.values)


def _same_op(got: Row, wanted: Row) -> bool:
    """Who does not say whether rows enter or leave means rows that enter."""
    return got.op == ("+" if wanted.op is None and got.op is not None else wanted.op)


def _misplaced(got: Rows, wanted: Rows, tolerance: Tolerance) -> str | None:
    start = 0
    for _, rows in groupby(got.rows, key=lambda row: row.ts):
        instant = list(rows)
        here = wanted.rows[start : start + len(instant)]
        early, late = unmatched(instant, here, tolerance)
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
