"""The types of parameters of a SELECT, where the client does not name them: from casts, and from what they meet."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import sqlglot
from sqlglot import exp

from penstock.server.postgres import types
from penstock.server.postgres.errors import Refused
from penstock.server.postgres.types import TYPES

_NAMES = {
    "integer": "int4", "int": "int4", "bigint": "int8", "smallint": "int2", "boolean": "bool", "double precision":
    "float8", "double": "float8", "real": "float4", "decimal": "numeric", "string": "text", "binary": "bytea",
    "blob": "bytea", "varbinary": "bytea",
}  # fmt: skip


def types_in_select(text: str, given: Sequence[int], tables: Mapping[str, pa.Schema]) -> list[int]:
    """The types of a plain SELECT's parameters; ``tables``: what it may read."""
    try:
        tree = sqlglot.parse_one(text, read="postgres")
    except (sqlglot.ParseError, sqlglot.TokenError, RecursionError):
        return list(given)
    return parameter_types(tree, given, tables)


def parameter_types(tree: exp.Expr, given: Sequence[int], tables: Mapping[str, pa.Schema]) -> list[int]:
    """What the client names, else what a parameter is cast to or compared with, else text."""
    read = [tables[t.name.lower()] for t in tree.find_all(exp.Table) if t.name.lower() in tables]
    found: dict[int, int] = {}
    for node in tree.find_all(exp.Parameter):
        number = int(node.name) if node.name.isdigit() else 0
        if not 1 <= number <= 65_535:
            raise Refused("42P02", f"there is no parameter ${node.name}")
        oid = _oid(node, read)
        if found.get(number, 25) == 25:
            found[number] = oid
    count = max([*found, len(given)], default=0)
    return [(given[i] if i < len(given) else 0) or found.get(i + 1, 25) for i in range(count)]


def _oid(node: exp.Expr, read: Sequence[pa.Schema]) -> int:
    around = node.parent
    match around:
        case exp.Cast():
            return _cast_to(around.to.sql("postgres"))
        case exp.Any():
            return TYPES["text"].array
        case exp.Paren() | exp.Neg():
            return _oid(around, read)
        case exp.Limit() | exp.Offset():
            return TYPES["int8"].oid
        case exp.Binary() | exp.Between() | exp.In():
            return next((oid for side in around.iter_expressions() if (oid := _of_side(side, read))), 25)
    return 25


def _cast_to(name: str) -> int:
    base, _, many = name.lower().rpartition(".")[2].partition("[")
    base = re.sub(r"\(.*", "", base).strip()
    known = TYPES.get(_NAMES.get(base, base))
    if known is None or base.startswith("reg"):
        return 25
    return known.array if many else known.oid


def _of_side(side: exp.Expr, read: Sequence[pa.Schema]) -> int:
    """The type of what a parameter stands beside: of a column, if all tables agree, or of a number; 0: unknown."""
    if isinstance(side, exp.Column):
        oids = {types.of(f.type)[0] for schema in read for f in schema if f.name.lower() == side.name.lower()}
        return oids.pop() if len(oids) == 1 else 0
    if isinstance(side, exp.Literal) and not side.is_string:
        return TYPES["int8" if side.name.isdigit() else "numeric"].oid
    return 0
