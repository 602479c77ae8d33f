"""Amounts of data as people write them: bytes, or rows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.model.errors import InputError

UNITS = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([^\W\d]*)\s*", re.ASCII)
_ROWS = ("ROW", "ROWS")


@dataclass(frozen=True)
class Bound:
    """So many rows, or so many bytes; one of the two is None."""

    rows: int | None = None
    bytes: int | None = None

    def __str__(self) -> str:
        return f"{self.rows:,} rows" if self.rows is not None else shown(self.bytes or 0)


def parse_bytes(name: str, value: object) -> int:
    """Bytes, from a number or from a text like '512 MB' or '2 GiB'."""
    bound = parse_bound(name, value, rows=False)
    assert bound.bytes is not None
    return bound.bytes


def parse_bound(name: str, value: object, *, rows: bool = True) -> Bound:
    """Bytes or rows, from a text like '64 MB' or '100000 rows'; a number counts bytes."""
    hint = "it is a size like '512 MB', '2 GiB'" + (", or a number of rows like '100000 rows'" if rows else "")
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Bound(bytes=value)
    match = _AMOUNT.fullmatch(value.replace("_", "").replace(",", "")) if isinstance(value, str) else None
    if match is None:
        raise InputError(f"{name} is {value!r}", hint=hint)
    number, unit = match[1], match[2].upper()
    if unit in _ROWS and rows:
        if "." in number:
            raise InputError(f"{name} is {value!r}", hint="rows are a whole number")
        return Bound(rows=int(number))
    if unit not in UNITS and unit != "":
        raise InputError(f"{name} is {value!r}: no unit `{match[2]}`", hint=hint)
    return Bound(bytes=int(float(number) * UNITS.get(unit, 1)))


def written(bound: Bound) -> str:
    """A bound as a text that ``parse_bound`` reads as the same."""
    if bound.rows is not None:
        return f"{bound.rows} rows"
    size = bound.bytes or 0
    exact = size >= UNITS["KB"] and parse_bytes("", shown(size)) == size
    return shown(size) if exact else f"{size} B"


def shown(bytes: int) -> str:
    """Bytes for people."""
    for unit in ("TB", "GB", "MB", "KB"):
        if bytes >= UNITS[unit]:
            return f"{bytes / UNITS[unit]:.3g} {unit}"
    return f"{bytes} bytes"
