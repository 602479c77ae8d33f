"""Plain objects come back from columns as they were, also from parts of columns and from several together."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import types
from penstock.model.schema import Field
from penstock.operators.rows import Row
from penstock.operators.shapes import (
    BIG,
    FLOAT,
    INT,
    MOMENT,
    TEXT,
    Hashed,
    ListOf,
    MapOf,
    OneOrNone,
    Ordered,
    Record,
    Shape,
    Typed,
    row_of,
)
from penstock.scalar import hashable, order_key
from tests.budget import examples

Made = tuple[Shape, st.SearchStrategy[Any]]
LONGS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, float("nan"), float("inf")])
VALUES: dict[types.DataType, st.SearchStrategy[Any]] = {
    types.BOOLEAN: st.booleans(),
    types.INT: st.integers(-(2**31), 2**31 - 1),
    types.BIGINT: LONGS,
    types.REAL: st.floats(width=32),
    types.DOUBLE: FLOATS,
    types.STRING: st.text(),
    types.BINARY: st.binary(),
    types.DATE: st.integers(-719_162, 2_932_896),
    types.TIMESTAMP: LONGS,
    types.INTERVAL: LONGS,
    types.decimal(9, 2): st.integers(-999_999_999, 999_999_999).map(lambda n: Decimal(n).scaleb(-2)),
}
VALUES |= {types.array(t): st.lists(st.none() | v, max_size=3).map(tuple) for t, v in list(VALUES.items())}
NULLABLE = {t: st.none() | v for t, v in VALUES.items()}
typed = st.sampled_from(list(NULLABLE))
leaves = (
    st.sampled_from([(INT, LONGS), (FLOAT, FLOATS), (TEXT, st.text()), (BIG, st.integers())])
    | typed.map(lambda t: (Typed(t), NULLABLE[t]))
    | typed.map(lambda t: (Hashed(t), NULLABLE[t].map(hashable)))
    | typed.map(lambda t: (Ordered(t), NULLABLE[t].map(order_key)))
)


def nested(inner: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    return (
        st.lists(inner, max_size=3).map(lambda some: (Record(*[s for s, _ in some]), st.tuples(*[v for _, v in some])))
        | inner.map(lambda one: (ListOf(one[0]), st.lists(one[1], max_size=3).map(tuple)))
        | inner.map(lambda one: (OneOrNone(MOMENT), st.none() | st.tuples(LONGS, LONGS)))
        | st.tuples(typed, inner).map(
            lambda two: (
                MapOf(Hashed(two[0]), two[1][0]),
                st.dictionaries(NULLABLE[two[0]].map(hashable), two[1][1], max_size=3),
            )
        )
    )


shapes = st.recursive(leaves, nested, max_leaves=4)


def said(values: Any) -> list[str]:
    """Tells -0.0 from 0.0, and one type from another; NaN is itself."""
    return [repr(v) for v in values]


@settings(max_examples=examples(300), deadline=None)
@given(st.data(), shapes)
def test_values_come_back(data: st.DataObject, made: Made) -> None:
    shape, strategy = made
    values = data.draw(st.lists(strategy, max_size=6))
    assert said(shape.entries(shape.table(values))) == said(values)
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    assert said(shape.entries(shape.table(values).slice(start, stop - start))) == said(values[start:stop])
    nothing = pa.nulls(1, shape.array(values).type)
    whole = pa.concat_tables([shape.table(values), pa.table({"entry": nothing}), shape.table(values[:start])])
    kept = [*range(len(values)), *range(len(values) + 1, len(values) + 1 + start)]
    assert said(shape.entries(whole.take(pa.array(kept, pa.int64())))) == said(values + values[:start])


@given(st.lists(st.tuples(st.tuples(LONGS, FLOATS), st.tuples(LONGS, LONGS), LONGS, LONGS).map(Row._make), max_size=5))
def test_rows_come_back(rows: list[Row]) -> None:
    shape = row_of((Field("a", types.BIGINT), Field("b", types.DOUBLE)))
    found = shape.entries(shape.table(rows))
    assert said(found) == said(rows)
    assert all(type(row) is Row for row in found)
