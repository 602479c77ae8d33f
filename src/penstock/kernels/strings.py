"""Texts: where Arrow's function is exactly ours, by Arrow; elsewhere the kernel declines and rows are computed singly.

Arrow counts code points as we do, but its case mapping differs from Unicode's full one and some positions are bytes, so
those are used on ASCII only. No result may be longer than ``MAX_LENGTH``; where all together are shorter, each is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.vectors import Fixed, Value, booleans, from_arrow
from penstock.model.types import Kind
from penstock.scalar.context import RowError
from penstock.scalar.expr import Call, Expr, Literal
from penstock.scalar.strings import MAX_LENGTH, like_parts

Kernel = Callable[..., Any]

_INT32 = np.dtype(np.int32)
_PADDING = 2**31 - 1


def _text(expr: Expr) -> str | None:
    return expr.value if isinstance(expr, Literal) and isinstance(expr.value, str) else None


def _integer(expr: Expr) -> int | None:
    return expr.value if isinstance(expr, Literal) and isinstance(expr.value, int) else None


def _content(array: pa.Array) -> tuple[pa.Buffer | None, int, int]:
    """The bytes of a column of texts, and which of them it uses."""
    _, offsets, content = array.buffers()
    if content is None or offsets is None or not len(array):
        return None, 0, 0
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
    return content, int(ends[0]), int(ends[-1])


def is_ascii(array: Value) -> bool:
    """Whether all texts are ASCII."""
    if isinstance(array, pa.Scalar):
        return not array.is_valid or bool(array.as_py().isascii())
    content, start, end = _content(array)
    return content is None or start == end or bool(np.frombuffer(content, np.uint8, end - start, start).max() < 128)


def _size(array: Value) -> int:
    if isinstance(array, pa.Scalar):
        return len(array.as_buffer()) if array.is_valid else 0
    _, start, end = _content(array)
    return end - start


def _texts(call: Call) -> bool:
    return call.args[0].type.kind is Kind.STRING


def _case(function: Callable[[pa.Array], pa.Array]) -> Callable[[Call], Kernel | None]:
    return lambda call: (lambda a: function(a) if is_ascii(a) else None) if _texts(call) else None


def _lengths(function: Callable[[pa.Array], pa.Array], kind: Kind) -> Callable[[Call], Kernel | None]:
    def build(call: Call) -> Kernel | None:
        if call.args[0].type.kind is not kind:
            return None

        def kernel(a: pa.Array) -> Fixed:
            found = from_arrow(function(a), _INT32)
            return Fixed(found.data.astype(np.int64), found.valid)

        return kernel

    return build


def _trim(function: Callable[..., pa.Array]) -> Callable[[Call], Kernel | None]:
    def build(call: Call) -> Kernel | None:
        characters = _text(call.args[1]) if len(call.args) == 2 else " "
        if not characters or not _texts(call):
            return None
        return lambda a, *_: function(a, characters=characters)

    return build


def _slice(a: pa.Array, start: int, stop: int | None) -> pa.Array:
    return pc.utf8_slice_codeunits(a, start, stop=None if stop is None else min(stop, _PADDING))


def _substr(call: Call) -> Kernel | None:
    start = _integer(call.args[1])
    if start is None or not 0 <= start < _PADDING or not _texts(call):
        return None
    start = max(start, 1)
    if len(call.args) == 2:
        return lambda a, *_: _slice(a, start - 1, None)
    length = _integer(call.args[2])
    if length is None or length < 0:
        return None
    return lambda a, *_: _slice(a, start - 1, start - 1 + length)


def _left(call: Call) -> Kernel | None:
    count = _integer(call.args[1])
    if count is None or not _texts(call):
        return None
    return lambda a, _: _slice(a, 0, max(0, count))


def _replace(call: Call) -> Kernel | None:
    search, new = _text(call.args[1]), _text(call.args[2])
    if not search or new is None or not _texts(call):
        return None

    def kernel(a: pa.Array, *_: Value) -> pa.Array | None:
        longest = _size(a) * max(1, len(new.encode()))
        return pc.replace_substring(a, pattern=search, replacement=new) if longest <= MAX_LENGTH else None

    return kernel


def _reverse(call: Call) -> Kernel | None:
    return pc.utf8_reverse if _texts(call) else None


def _strpos(call: Call) -> Kernel | None:
    search = _text(call.args[1])
    if not search or not _texts(call):
        return None

    def kernel(a: pa.Array, _: Value) -> Fixed | None:
        if not is_ascii(a):
            return None
        found = from_arrow(pc.find_substring(a, pattern=search), _INT32)
        return Fixed(found.data.astype(np.int64) + 1, found.valid)

    return kernel


def _matching(function: Callable[..., pa.Array]) -> Callable[[Call], Kernel | None]:
    """starts_with, ends_with and contains. Equal bytes are equal code points in UTF-8."""

    def build(call: Call) -> Kernel | None:
        pattern = _text(call.args[1])
        if pattern is None or not _texts(call):
            return None
        return lambda a, _: booleans(function(a, pattern=pattern))

    return build


def _like(call: Call) -> Kernel | None:
    """Patterns with ``%`` only at their ends; others are matched by a regular expression, row by row."""
    pattern = _text(call.args[1])
    escape = _text(call.args[2]) if len(call.args) == 3 else ""
    if pattern is None or escape is None or not _texts(call):
        return None
    try:
        parts = like_parts(pattern, escape)
    except RowError:
        return None
    match = _simple_like(parts, lower=call.function == "ilike")
    if match is None:
        return None
    if call.function == "like":
        return lambda a, *_: booleans(match(a))
    # Folding is lower case only in ASCII.
    if not pattern.isascii():
        return None
    return lambda a, *_: booleans(match(pc.ascii_lower(a))) if is_ascii(a) else None


def _simple_like(parts: list[tuple[str, bool]], lower: bool) -> Callable[[pa.Array], pa.Array] | None:
    literal = [i for i, (_, is_wild) in enumerate(parts) if not is_wild]
    first, last = (literal[0], literal[-1] + 1) if literal else (len(parts), len(parts))
    if len(literal) < last - first or ("_", True) in parts:
        return None
    begins, ends = first == 0, last == len(parts)
    if not literal:
        begins = ends = not parts
    middle = "".join(c for c, _ in parts[first:last])
    middle = middle.lower() if lower else middle
    if begins and ends:
        return lambda a: pc.equal(a, pa.scalar(middle))
    if begins:
        return lambda a: pc.starts_with(a, pattern=middle)
    if ends:
        return lambda a: pc.ends_with(a, pattern=middle)
    return lambda a: pc.match_substring(a, pattern=middle)


def _concat(call: Call) -> Kernel | None:
    if any(a.type.kind is not Kind.STRING for a in call.args):
        return None
    return lambda *parts: _joined(parts, pa.scalar(""), "emit_null")


def _concat_ws(call: Call) -> Kernel | None:
    separator = _text(call.args[0])
    if separator is None or len(call.args) < 2 or any(a.type.kind is not Kind.STRING for a in call.args):
        return None
    return lambda first, *parts: _joined(parts, first, "skip")


def _joined(parts: tuple[Value, ...], separator: pa.Scalar, nulls: str) -> pa.Array | None:
    longest = sum(_size(p) for p in parts) + _size(separator) * len(parts)
    if longest > MAX_LENGTH:
        return None
    joined = pc.binary_join_element_wise(*parts, separator, null_handling=nulls)
    # pyarrow gives no rows at all where every text is empty.
    length = max((len(p) for p in parts if isinstance(p, pa.Array)), default=1)
    return joined if not isinstance(joined, pa.Array) or len(joined) == length else None


def _cardinality(call: Call) -> Kernel | None:
    def kernel(a: pa.Array) -> Fixed:
        found = from_arrow(pc.list_value_length(a), _INT32)
        return Fixed(found.data.astype(np.int64), found.valid)

    return kernel if call.args[0].type.kind is Kind.ARRAY else None


STRINGS: dict[str, Callable[[Call], Kernel | None]] = {
    "lower": _case(pc.ascii_lower),
    "upper": _case(pc.ascii_upper),
    "length": _lengths(pc.utf8_length, Kind.STRING),
    "octet_length": _lengths(pc.binary_length, Kind.BINARY),
    "trim": _trim(pc.utf8_trim),
    "ltrim": _trim(pc.utf8_ltrim),
    "rtrim": _trim(pc.utf8_rtrim),
    "substr": _substr,
    "left": _left,
    "replace": _replace,
    "reverse": _reverse,
    "strpos": _strpos,
    "starts_with": _matching(pc.starts_with),
    "ends_with": _matching(pc.ends_with),
    "contains": _matching(pc.match_substring),
    "like": _like,
    "ilike": _like,
    "||": _concat,
    "concat_ws": _concat_ws,
    "cardinality": _cardinality,
}
