"""Forms in which times are usually written, beside ISO 8601."""

from __future__ import annotations

import pyarrow as pa

from penstock.model.types import TIMESTAMP
from penstock.rows.times import TimeForm
from penstock.rows.values import BadValue, convert_text

_DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d.%m.%y")
_CLOCKS = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f")
_TWELVE_HOURS = ("%I:%M:%S %p", "%I:%M %p")
PATTERNS = (
    *(f"{day} {clock}" for day in _DAYS for clock in _CLOCKS),
    *(f"%m/%d/%Y {clock}" for clock in _TWELVE_HOURS),
    "%Y%m%dT%H%M%S", "%Y%m%dT%H%M%SZ", "%d/%b/%Y:%H:%M:%S %z",
    *_DAYS,
)  # fmt: skip
"""Texts that are tried as times."""


def read_all(form: TimeForm, column: pa.Array) -> pa.Array | None:
    """The times of a column; None if one is not written so."""
    try:
        form.read(column.slice(0, 1))
        return form.read(column)
    except BadValue:
        return None


def could_be_time(text: str) -> bool:
    """Whether a text is a time or a date in one of the known forms."""
    column = pa.array([text])
    try:
        convert_text(column, TIMESTAMP)
    except BadValue:
        return any(read_all(TimeForm(pattern), column) is not None for pattern in PATTERNS)
    return True
