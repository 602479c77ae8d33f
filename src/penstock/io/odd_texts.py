"""Columns of texts that nearly are more: numbers with decimal commas, numbers or times but for a few texts."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_COMMAS = r"^\s*[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?\s*$"
_KINDS = {
    "number": r"^\s*[+-]?(0|[1-9]\d*|(0|[1-9]\d*)?\.\d+)([eE][+-]?\d+)?\s*$",
    "time": r"^\s*\d{4}-\d\d-\d\d([T ]\d\d:\d\d[^a-y]*)?$",
}
_MOST = 0.9


@dataclass(frozen=True)
class OddText:
    """The first text of a column that is none of what nearly all the others are: ``among`` numbers, or times."""

    row: int
    text: str
    among: str


def decimal_commas(column: pa.Array) -> int | None:
    """How many digits behind the comma numbers such as 1.234,56 have at most; None if the texts are no such numbers."""
    texts = column.filter(pc.not_equal(column, "")).drop_null()
    commas = pc.any(pc.match_substring(texts, ",")).as_py()
    if not commas or not pc.all(pc.match_substring_regex(texts, _COMMAS)).as_py():
        return None
    behind = pc.utf8_length(pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), "^[^,]*,?", ""))
    return int(pc.max(behind).as_py())


def odd_text(column: pa.Array) -> OddText | None:
    """What keeps a column from being one of numbers or times, if it is that but for few texts."""
    given = pc.and_kleene(column.is_valid(), pc.not_equal(column, "")).fill_null(False)
    for among, form in _KINDS.items():
        fits = pc.match_substring_regex(column, form).fill_null(False)
        row = pc.index(pc.and_(given, pc.invert(fits)), True).as_py()
        if row < 0:
            continue
        others = pc.and_(given, pc.not_equal(column, column[row]).fill_null(False))
        like = pc.sum(pc.and_(fits, others)).as_py() or 0
        if like >= 2 and like >= _MOST * pc.sum(others).as_py():
            return OddText(row, column[row].as_py(), among)
    return None
