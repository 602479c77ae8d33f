"""Tables for people: aligned columns, a little colour on a terminal."""

from __future__ import annotations

import pyarrow as pa
from rich.cells import cell_len

from penstock.model.types import Kind, from_arrow
from penstock.rows.text import is_numeric, plain

_BOLD, _GREEN, _RED, _OFF = "\x1b[1m", "\x1b[32m", "\x1b[31m", "\x1b[0m"
_BLANKS = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t", "\x1b": "\\e"})
_LEAST = {Kind.TIMESTAMP: 19, Kind.DATE: 10, Kind.DOUBLE: 6, Kind.BIGINT: 4}


class TableText:
    """Lays out tables of one schema. Widths are those of the first rows, and grow when they must."""

    def __init__(self, schema: pa.Schema, *, color: bool = False) -> None:
        self._names = [name.translate(_BLANKS) for name in schema.names]
        self._right = [is_numeric(dtype) for dtype in schema.types]
        self._widths = [
            max(cell_len(name), _least(dtype)) for name, dtype in zip(self._names, schema.types, strict=True)
        ]
        self._op = schema.names.index("op") if "op" in schema.names else None
        self._color = color

    def head(self) -> str:
        """The names and a rule, in the widths known so far."""
        names = self._line(self._names)
        rule = "  ".join("-" * width for width in self._widths)
        return f"{_BOLD}{names}{_OFF}\n{rule}\n" if self._color else f"{names}\n{rule}\n"

    def body(self, table: pa.Table) -> str:
        """The rows, one line each."""
        columns = [
            ["NULL" if text is None else text.translate(_BLANKS) for text in plain(column, separator=" ")]
            for column in table.columns
        ]
        for at, column in enumerate(columns):
            self._widths[at] = max(self._widths[at], max(map(cell_len, column), default=0))
        return "".join(self._colored(row) + "\n" for row in zip(*columns, strict=True))

    def _line(self, cells: list[str]) -> str:
        parts = []
        for cell, width, right in zip(cells, self._widths, self._right, strict=True):
            pad = " " * (width - cell_len(cell))
            parts.append(pad + cell if right else cell + pad)
        return "  ".join(parts).rstrip()

    def _colored(self, row: tuple[str, ...]) -> str:
        line = self._line(list(row))
        if not self._color or self._op is None:
            return line
        return f"{_RED if row[self._op] == '-' else _GREEN}{line}{_OFF}"


def table_text(table: pa.Table, *, color: bool = False) -> str:
    """A whole table for people."""
    layout = TableText(table.schema, color=color)
    body = layout.body(table)
    return layout.head() + body


def _least(dtype: pa.DataType) -> int:
    found = from_arrow(dtype)
    return 0 if found is None else _LEAST.get(found.kind, 0)
