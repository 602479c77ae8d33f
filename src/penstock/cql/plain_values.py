"""VALUES of plain literals, read without the parser: numbers, texts, TRUE, FALSE, NULL, DATE and TIMESTAMP with a text.

What is not plain is left to the parser and its errors. What a field means is decided by the column that it goes into.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlglot import exp

SHORT = 2_000
"""Characters up to which the parser is about as fast as this reader."""
_FIRST_PIECE = 1 << 14
_MOST_PIECE = 1 << 22

_COMMENT = r"--[^\r\n]*+|/\*(?:[^/*]++|\*(?!/)|/(?!\*))*+\*/"
_NAME = r'(?:[^\W\d]\w*+|"[^"]*+")'
_NAMES = rf"\(\s*+{_NAME}\s*+(?:,\s*+{_NAME}\s*+)*+\)\s*+"
_HEAD = re.compile(
    rf"(?:\s++|{_COMMENT})*+INSERT\s++INTO\s++{_NAME}\s*+(?:{_NAMES})?VALUES\s*+(?=\()", re.IGNORECASE
)
# To behind the next semicolon. A comment with another in it is not looked through: there the reader ends.
_STATEMENT = re.compile(rf"""(?:[^'"/;-]++|'[^']*+'|"[^"]*+"|{_COMMENT}|/(?!\*)|-(?!-))*+;""")


@dataclass(frozen=True, eq=False)
class PlainValues:
    """Rows from ``start`` to ``end`` of a text: their fields, ``width`` to a row, and how each is written."""

    text: str
    start: int
    end: int
    width: int
    fields: pa.StringArray
    forms: npt.NDArray[np.uint8]

    def column(self, place: int) -> tuple[pa.StringArray, npt.NDArray[np.uint8]]:
        """The fields of a column, and how they are written."""
        places = np.arange(place, len(self.fields), self.width)
        return self.fields.take(pa.array(places)), self.forms[place :: self.width]

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The literals of each row, as they are printed."""
        written = iter(map(_printed, self.fields.to_pylist(), self.forms.tolist()))
        return zip(*[written] * self.width, strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlainValues) and list(self.rows()) == list(other.rows())

    def __hash__(self) -> int:
        return hash(tuple(self.rows()))


class PlainRows(exp.Expression):
    """The rows of an INSERT that are plain; ``this`` is their ``PlainValues``."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


def _printed(field: str, form: int) -> str:
    from penstock.kernels import literals

    if form == literals.BARE:
        return field.upper()
    text = "'" + field.replace("'", "''") + "'"
    return {literals.DATE: "DATE ", literals.TIMESTAMP: "TIMESTAMP "}.get(form, "") + text


def plain_values(text: str) -> Iterator[PlainValues]:
    """The VALUES of a script that are plain literals and not short, in their order."""
    at = 0
    while True:
        if head := _HEAD.match(text, at):
            ends = text.find(";", head.end())
            found = None
            if (ends if ends >= 0 else len(text)) - head.end() > SHORT:
                found = read_values(text, head.end())
            if found is not None:
                yield found
                at = found.end
        rest = _STATEMENT.match(text, at)
        if rest is None:
            return
        at = rest.end()


def read_values(text: str, start: int) -> PlainValues | None:
    """The rows that begin at a place of a text; None where they are not all plain."""
    # Compiled when it is first needed.
    from penstock.kernels import literals

    parts: list[pa.StringArray] = []
    forms: list[npt.NDArray[np.uint8]] = []
    at, size, told = start, _FIRST_PIECE, np.zeros(literals.TOLD, np.int64)
    while told[literals.ENDS] != literals.DONE or not parts:
        # Pieces grow with what has been read, so that not much is read behind the end.
        size = max(size, min(at - start, _MOST_PIECE))
        piece, last = text[at : at + size], at + size >= len(text)
        try:
            # Nothing follows the last piece, which is as good as a semicolon.
            data = np.frombuffer((piece + ";" * last).encode(), np.uint8)
        except UnicodeEncodeError:  # half of a surrogate pair
            return None
        content, offsets = np.empty(len(data), np.uint8), np.empty(len(data) // 2 + 2, np.int32)
        written = np.empty(len(data) // 2 + 2, np.uint8)
        literals.cut(data, told[literals.WIDTH], content, offsets, written, told)
        if told[literals.ENDS] == literals.OTHER or (last and told[literals.ENDS] == literals.MORE):
            return None
        if not told[literals.ROWS]:
            size *= 2
            continue
        fields = int(told[literals.ROWS] * told[literals.WIDTH])
        buffers = [None, pa.py_buffer(offsets[: fields + 1]), pa.py_buffer(content[: told[literals.CONTENT]])]
        parts.append(pa.Array.from_buffers(pa.string(), fields, buffers))
        forms.append(written[:fields])
        taken = int(told[literals.TAKEN])
        at += taken if len(data) == len(piece) + last else len(data[:taken].tobytes().decode())
        size = _FIRST_PIECE
    width = int(told[literals.WIDTH])
    return PlainValues(text, start, at, width, pa.concat_arrays(parts), np.concatenate(forms))
