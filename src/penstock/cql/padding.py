"""NULL that fills a column of UNION and its like has the type that the column has elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from penstock.cql.text import parse
from penstock.model.errors import PenstockError
from penstock.model.schema import Schema


def typed_nulls(tree: exp.SetOperation, schema_of: Callable[[exp.Expr], Schema]) -> exp.SetOperation:
    """The same with ``CAST(NULL AS …)`` where a bare NULL stands and another side says what its type is."""
    if not any(_nulls(select) for select in _selects(tree)):
        return tree
    copied = tree.copy()
    selects = list(_selects(copied))
    known = [_types(select, schema_of) for select in selects]
    for select in selects:
        for place in _nulls(select):
            types = [types[place] for types in known if place in types]
            if types:
                _fill(select, place, types[0])
    return copied


def _selects(tree: exp.Expr) -> list[exp.Select]:
    """The sides, of those that are put together again their sides; only where columns can be counted."""
    if isinstance(tree, exp.SetOperation):
        return [*_selects(tree.this), *_selects(tree.expression)]
    if isinstance(tree, exp.Subquery) and not tree.args.get("stream_window"):
        return _selects(tree.this)
    if isinstance(tree, exp.Select) and not any(item.is_star for item in tree.expressions):
        return [tree]
    return []


def _nulls(select: exp.Select) -> list[int]:
    return [i for i, item in enumerate(select.expressions) if isinstance(item.unalias(), exp.Null)]


def _types(select: exp.Select, schema_of: Callable[[exp.Expr], Schema]) -> dict[int, str]:
    """The types of the columns that are no bare NULL."""
    probe = select.copy()
    nulls = _nulls(probe)
    for place in nulls:
        _fill(probe, place, "BIGINT")
    return {i: str(field.type) for i, field in enumerate(schema_of(probe)) if i not in nulls}


def _fill(select: exp.Select, place: int, dtype: str) -> None:
    try:
        (cast,) = parse(f"SELECT CAST(NULL AS {dtype}) FROM s")[0].tree.expressions
    except PenstockError:
        return  # an array, whose type cannot be written
    item = select.expressions[place]
    (item.this if isinstance(item, exp.Alias) else item).replace(cast)
