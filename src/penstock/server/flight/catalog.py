"""The tables about tables that drivers of Flight SQL ask for, with the schemas that it prescribes."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from penstock.model.version import VERSION
from penstock.server.flight import wire
from penstock.server.service import Service
from penstock.server.session import Session

CATALOG = "penstock"
SCHEMA = "public"
TYPES = ("STREAM", "RELATION", "QUERY", "SYSTEM")
_SYSTEM = ("streams", "relations", "queries", "operators", "buffers", "parts", "sessions", "batches", "late", "failed")

_UNION = pa.dense_union(
    [
        pa.field("string_value", pa.string()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.field("string_data", pa.string()))),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32())))),
    ]
)
INFO = pa.schema([pa.field("info_name", pa.uint32(), nullable=False), pa.field("value", _UNION)])
# Names of the facts are those of Flight SQL's enum SqlInfo.
_FACTS: dict[int, str | bool | int] = {
    0: "penstock",
    1: VERSION,
    2: pa.__version__,
    3: False,  # read only
    4: True,  # SQL
    5: False,  # Substrait
    8: 0,  # transactions: none
    9: False,  # cancel by an action of Flight SQL: cancel the call
    10: True,  # bulk ingestion
    11: False,  # in a transaction
    500: False,  # CREATE CATALOG
    501: False,  # CREATE SCHEMA
    502: True,  # CREATE … of tables
    503: 3,  # names that are not quoted become lower case
    504: '"',
}

TABLES = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("table_type", pa.string(), nullable=False),
    ]
)
SCHEMAS = pa.schema([pa.field("catalog_name", pa.string()), pa.field("db_schema_name", pa.string(), nullable=False)])
CATALOGS = pa.schema([pa.field("catalog_name", pa.string(), nullable=False)])
TABLE_TYPES = pa.schema([pa.field("table_type", pa.string(), nullable=False)])
KEYS = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("column_name", pa.string(), nullable=False),
        pa.field("key_name", pa.string()),
        pa.field("key_sequence", pa.int32(), nullable=False),
    ]
)
_SIDES = [
    pa.field(f"{side}_{name}", pa.string(), nullable=name in ("catalog_name", "db_schema_name"))
    for side in ("pk", "fk")
    for name in ("catalog_name", "db_schema_name", "table_name", "column_name")
]
FOREIGN = pa.schema(
    [
        *_SIDES,
        pa.field("key_sequence", pa.int32(), nullable=False),
        pa.field("fk_key_name", pa.string()),
        pa.field("pk_key_name", pa.string()),
        pa.field("update_rule", pa.uint8(), nullable=False),
        pa.field("delete_rule", pa.uint8(), nullable=False),
    ]
)
XDBC = pa.schema(
    [
        pa.field("type_name", pa.string(), nullable=False),
        pa.field("data_type", pa.int32(), nullable=False),
        pa.field("column_size", pa.int32()),
        pa.field("literal_prefix", pa.string()),
        pa.field("literal_suffix", pa.string()),
        pa.field("create_params", pa.list_(pa.field("item", pa.string(), nullable=False))),
        pa.field("nullable", pa.int32(), nullable=False),
        pa.field("case_sensitive", pa.bool_(), nullable=False),
        pa.field("searchable", pa.int32(), nullable=False),
        pa.field("unsigned_attribute", pa.bool_()),
        pa.field("fixed_prec_scale", pa.bool_(), nullable=False),
        pa.field("auto_increment", pa.bool_()),
        pa.field("local_type_name", pa.string()),
        pa.field("minimum_scale", pa.int32()),
        pa.field("maximum_scale", pa.int32()),
        pa.field("sql_data_type", pa.int32(), nullable=False),
        pa.field("datetime_subcode", pa.int32()),
        pa.field("num_prec_radix", pa.int32()),
        pa.field("interval_precision", pa.int32()),
    ]
)
# Type, number in JDBC, size, quote before and after a literal.
_XDBC: tuple[tuple[str, int, int | None, str | None], ...] = (
    ("BOOLEAN", -7, 1, None),
    ("INT", 4, 10, None),
    ("BIGINT", -5, 19, None),
    ("REAL", 7, 24, None),
    ("DOUBLE", 8, 53, None),
    ("DECIMAL", 3, 38, None),
    ("STRING", 12, None, "'"),
    ("BINARY", -3, None, None),
    ("DATE", 91, 10, "'"),
    ("TIMESTAMP", 93, 26, "'"),
    ("INTERVAL", 10, None, "'"),
)

Asked = tuple[pa.Schema, Callable[[], pa.Table]]


def answer(service: Service, session: Session, name: str, found: wire.Fields) -> Asked | None:
    """The schema and the rows of a command about metadata; None where it is another command."""
    match name:
        case "CommandGetSqlInfo":
            return INFO, lambda: _info(wire.all_ints(found, 1))
        case "CommandGetCatalogs":
            return CATALOGS, lambda: pa.table([[CATALOG]], schema=CATALOGS)
        case "CommandGetDbSchemas":
            return SCHEMAS, lambda: _schemas(wire.as_text(found, 1), wire.as_text(found, 2))
        case "CommandGetTableTypes":
            return TABLE_TYPES, lambda: pa.table([list(TYPES)], schema=TABLE_TYPES)
        case "CommandGetTables":
            schema = TABLES
            if wire.as_int(found, 5):
                schema = TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
            return schema, lambda: _tables(service, session, found, schema)
        case "CommandGetPrimaryKeys":
            return KEYS, lambda: _keys(service, session, wire.as_text(found, 3))
        case "CommandGetExportedKeys" | "CommandGetImportedKeys" | "CommandGetCrossReference":
            return FOREIGN, FOREIGN.empty_table
        case "CommandGetXdbcTypeInfo":
            return XDBC, lambda: _xdbc(wire.as_int(found, 1) if 1 in found else None)
    return None


def _info(wanted: list[int]) -> pa.Table:
    names = [n for n in (wanted or _FACTS) if n in _FACTS]
    facts = [_FACTS[n] for n in names]
    sort = {str: 0, bool: 1, int: 3}
    kinds = [sort[type(f)] for f in facts]
    children: list[list[object]] = [[] for _ in range(6)]
    offsets = []
    for kind, fact in zip(kinds, facts, strict=True):
        offsets.append(len(children[kind]))
        children[kind].append(fact)
    arrays = [pa.array(values, _UNION.field(i).type) for i, values in enumerate(children)]
    value = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()), arrays, [_UNION.field(i).name for i in range(6)]
    )
    return pa.table([pa.array(names, pa.uint32()), value.cast(_UNION) if value.type != _UNION else value], schema=INFO)


def _like(pattern: str | None) -> Callable[[str], bool]:
    """A filter with % and _; without one everything passes."""
    if pattern is None:
        return lambda _: True
    parts = "".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern)
    found = re.compile(parts, re.DOTALL)
    return lambda name: found.fullmatch(name) is not None


def _schemas(catalog: str | None, pattern: str | None) -> pa.Table:
    passes = _like(pattern)
    names = [n for n in (SCHEMA, "sys") if passes(n) and catalog in (None, CATALOG)]
    return pa.table([[CATALOG] * len(names), names], schema=SCHEMAS)


def _tables(service: Service, session: Session, found: wire.Fields, schema: pa.Schema) -> pa.Table:
    catalog, schemas = wire.as_text(found, 1), _like(wire.as_text(found, 2))
    names, types = _like(wire.as_text(found, 3)), wire.all_texts(found, 4)
    known: list[tuple[str, str, str, pa.Schema | None]] = [
        *((SCHEMA, s.name, "STREAM", s.schema) for s in service.streams(session)),
        *((SCHEMA, r.name, "RELATION", r.schema) for r in service.relations(session)),
        *((SCHEMA, q.name, "QUERY", q.schema) for q in service.queries(session, ended=False)),
        *(("sys", name, "SYSTEM", None) for name in _SYSTEM),
    ]
    rows = [
        k
        for k in sorted(known, key=lambda k: k[:2])
        if catalog in (None, CATALOG) and schemas(k[0]) and names(k[1]) and (not types or k[2] in types)
    ]
    columns: list[list[object]] = [
        [CATALOG] * len(rows),
        [r[0] for r in rows],
        [r[1] for r in rows],
        [r[2] for r in rows],
    ]
    if len(schema) > len(TABLES):
        shown = [r[3] if r[3] is not None else service.sys_table(session, r[1]).schema for r in rows]
        columns.append([s.serialize().to_pybytes() for s in shown])
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _keys(service: Service, session: Session, table: str | None) -> pa.Table:
    rows = [
        (CATALOG, SCHEMA, r.name, column, None, i)
        for r in service.relations(session)
        if r.name == table
        for i, column in enumerate(r.key, 1)
    ]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(KEYS)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, KEYS, strict=True)], schema=KEYS)


def _xdbc(wanted: int | None) -> pa.Table:
    rows = []
    for name, number, size, quote in _XDBC:
        if wanted is not None and wanted not in (number, number & 0xFFFF_FFFF_FFFF_FFFF):
            continue
        params = ["precision", "scale"] if name == "DECIMAL" else None
        scale = 38 if name == "DECIMAL" else None
        rows.append((
            name, number, size, quote, quote, params, 1, name == "STRING", 3,
            False if number in (4, -5, 7, 8, 3) else None, False, None, name, 0 if scale else None, scale, number,
            None, 10 if number in (4, -5, 3) else None, None,
        ))  # fmt: skip
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(XDBC)
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, XDBC, strict=True)], schema=XDBC)
