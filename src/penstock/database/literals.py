"""Columns of the literals of ``cql.plain_values``: what the parser and the binder give, for whole columns at once.

Where that is not sure, or a literal does not go into its column, there is None, and the caller asks the parser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.cql.plain_values import PlainValues
from penstock.kernels import literals
from penstock.kernels.expressions import RowErrors, compile_expr
from penstock.model.types import STRING, DataType, Kind
from penstock.scalar.expr import Column, Expr

_TYPED = {Kind.DATE: literals.DATE, Kind.TIMESTAMP: literals.TIMESTAMP}
# Every literal of so many characters is exact.
_EXACT = 38


def plain_columns(
    values: PlainValues, types: Sequence[DataType], convert: Callable[[Expr, DataType], Expr]
) -> list[pa.Array] | None:
    """The columns of the given types; ``convert`` makes the expression that brings a text to a type."""
    columns = []
    for place, dtype in enumerate(types):
        fields, forms = values.column(place)
        column = _column(fields, forms, dtype, convert)
        if column is None:
            return None
        columns.append(column)
    return columns


def _column(
    fields: pa.StringArray, forms: npt.NDArray[np.uint8], dtype: DataType, convert: Callable[[Expr, DataType], Expr]
) -> pa.Array | None:
    if dtype.is_numeric or dtype.kind is Kind.BOOLEAN:
        if forms.any():
            return None
        return _booleans(fields) if dtype.kind is Kind.BOOLEAN else _numbers(fields, dtype)
    if dtype.kind not in (Kind.STRING, Kind.DATE, Kind.TIMESTAMP, Kind.INTERVAL):
        return None
    bare = forms == literals.BARE
    if bare.any():
        null = _is(fields, "NULL")
        if not np.array_equal(bare, null.to_numpy(zero_copy_only=False) & bare):
            return None
        fields = pc.if_else(pa.array(bare), pa.scalar(None, pa.string()), fields)
    written = bare | (forms == literals.TEXT)
    if dtype.kind in _TYPED:
        written |= forms == _TYPED[dtype.kind]
    if not written.all():
        return None
    if dtype == STRING:
        return fields
    run = RowErrors()
    column = compile_expr(convert(Column(0, STRING), dtype), {})([fields], len(fields), run)
    return None if run.failures else column


def _is(fields: pa.StringArray, word: str) -> pa.BooleanArray:
    return pc.equal(pc.ascii_upper(fields), word)


def _booleans(fields: pa.StringArray) -> pa.Array | None:
    true, null = _is(fields, "TRUE"), _is(fields, "NULL")
    if not pc.all(pc.or_(pc.or_(true, null), _is(fields, "FALSE"))).as_py():
        return None
    return pc.if_else(null, pa.scalar(None, pa.bool_()), true)


def _numbers(fields: pa.StringArray, dtype: DataType) -> pa.Array | None:
    read = pa.float64() if dtype.is_float else pa.int64() if dtype.is_integer else dtype.arrow
    try:
        column = fields.cast(read)
    except pa.ArrowInvalid:
        null = _is(fields, "NULL")
        if not pc.any(null).as_py():
            return None
        fields = pc.if_else(null, pa.scalar(None, pa.string()), fields)
        try:
            column = fields.cast(read)
        except pa.ArrowInvalid:
            return None
    if dtype.is_integer:
        try:
            return column.cast(dtype.arrow)
        except pa.ArrowInvalid:
            return None
    if (pc.max(pc.binary_length(fields)).as_py() or 0) > _EXACT:
        return None
    if dtype.kind is Kind.DECIMAL:
        # With an exponent it is a DOUBLE first.
        return None if pc.any(pc.match_substring(fields, "e", ignore_case=True)).as_py() else column
    data = column.fill_null(1.0).to_numpy(zero_copy_only=False)
    # -0.0 is exact and has no sign, -0e0 is a DOUBLE and has one.
    if not np.isfinite(data).all() or (np.signbit(data) & (data == 0)).any():
        return None
    return column.cast(dtype.arrow)
