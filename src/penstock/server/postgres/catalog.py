"""The system catalogs: what clients ask about tables, columns, types, users and the server itself.

A question about ``pg_catalog`` or ``information_schema`` is translated from PostgreSQL's SQL to DuckDB's (sqlglot) and
answered over a handful of small tables that ``tables`` makes of what the user may read. Names of functions and types
that only PostgreSQL has become macros of the same meaning (``_MACROS``), or constants of the connection.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

from penstock.server.adhoc.guards import fetched
from penstock.server.postgres import tables
from penstock.server.postgres.errors import Refused
from penstock.server.postgres.inference import parameter_types
from penstock.server.postgres.parameters import SERVER_VERSION
from penstock.server.service import Service, Session
from penstock.server.stop import Stop, interrupted

_PROBABLY = re.compile(
    r"\bpg_|\binformation_schema\b|\b(version|current_schemas?|current_database|current_setting|set_config|"
    r"inet_server_addr|inet_server_port|inet_client_addr|txid_current|quote_ident|format_type|obj_description|has_\w+_privilege)\s*\(|"
    r"\b(current_catalog|current_user|current_role|session_user|current_schema)\b|\bregclass\b",
    re.IGNORECASE,
)
_MEMORY = "256MB"
_FRESH = 1.0
"""Seconds."""
_TOO_LONG = 100_000
"""Characters of a question about the catalogs."""


_MOST = 64_000_000
"""Bytes of an answer."""


class Seen:
    """What a connection has seen of the catalogs: one look at a table is many questions. Kept for a second, and
    until the connection changes something itself."""

    def __init__(self) -> None:
        self._tables: dict[str, pa.Table] = {}
        self._until = 0.0

    def forget(self) -> None:
        """Something is different now."""
        self._until = 0.0

    def tables(self, asking: Asking) -> dict[str, pa.Table]:
        """The tables as the user sees them."""
        now = time.monotonic()
        if now >= self._until:
            self._until = 0.0
            self._tables = tables.of_session(asking.service, asking.session, asking.database, asking.parameters)
            self._until = now + _FRESH
        return self._tables


@dataclass(frozen=True)
class Asking:
    """Who asks, over which connection."""

    service: Service
    session: Session
    database: str
    parameters: Mapping[str, str]
    number: int
    seen: Seen


@dataclass(frozen=True)
class Known:
    """The answer of the catalogs: parameters and columns, rows if it was run, parameters that ``set_config`` sets."""

    parameters: list[int]
    schema: pa.Schema
    table: pa.Table | None = None
    settings: list[tuple[str, str | None]] = field(default_factory=list)


class Catalog:
    """Answers questions about the catalogs, on any thread. Bounded by: ``_MEMORY`` and one thread for all together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._base: duckdb.DuckDBPyConnection | None = None

    def close(self) -> None:
        """Nobody asks any more."""
        with self._lock:
            if self._base is not None:
                self._base.close()
                self._base = None

    def ask(
        self, asking: Asking, text: str, values: Sequence[object] | None, given: Sequence[int],
        stop: Stop | None = None,
    ) -> Known | None:  # fmt: skip
        """Answer a question about the catalogs; None where it is none. Without ``values`` it is described, not run.

        ``given``: types of parameters that the client names. ``stop`` ends it.
        """
        tree = _parsed(text)
        if tree is None or not _is_ours(tree, asking):
            return None
        asking.service.check(asking.session)
        oids = parameter_types(tree, given, {})
        rewriting = _Rewriting(asking, values)
        made = _rewritten(tree, rewriting)
        left = {node.name for node in made.find_all(exp.Parameter)}  # some stood in arguments that are left out
        bound = {name: None if values is None else values[int(name) - 1] for name in left}
        sql = made.sql("duckdb")
        if values is None:
            sql = f"SELECT * FROM ({sql}) LIMIT 0"
        found = self._run(asking, sql, bound, stop)
        return Known(oids, found.schema, None if values is None else found, rewriting.settings)

    def _run(self, asking: Asking, sql: str, bound: Mapping[str, object], stop: Stop | None) -> pa.Table:
        seen = asking.seen.tables(asking)
        connection = self._connection()
        try:
            connection.execute("SET scalar_subquery_error_on_multiple_rows = false; SET integer_division = true")
            for name in _OF_MACROS | (seen.keys() & set(re.findall(r"\b_(\w+)", sql))):
                connection.register(f"_{name}", seen[name])
            with interrupted(connection, asking.service.settings.adhoc_seconds, stop):
                return fetched(connection.sql(sql, params=bound), _MOST)
        except (duckdb.Error, OSError) as error:  # the latter while the rows are read
            if "INTERRUPT" in str(error):
                raise Refused("57014", "canceling statement due to statement timeout") from None
            raise Refused("0A000", f"the system catalogs cannot answer this: {str(error).splitlines()[0]}") from None
        finally:
            connection.close()

    def _connection(self) -> duckdb.DuckDBPyConnection:
        """A connection with tables of its own, to the database with the macros and what is the same for everybody."""
        with self._lock:
            if self._base is None:
                self._base = _new_database()
            return self._base.cursor()


def _parsed(text: str) -> exp.Query | None:
    """The query that a text is, if it may be one about the catalogs."""
    if not _PROBABLY.search(text) or len(text) > _TOO_LONG:
        return None
    try:
        trees = sqlglot.parse(text, read="postgres")
    except (sqlglot.ParseError, sqlglot.TokenError, RecursionError):
        return None  # the service says what is wrong with it
    return trees[0] if len(trees) == 1 and isinstance(trees[0], exp.Query) else None


def _is_ours(tree: exp.Expr, asking: Asking) -> bool:
    """Whether a query reads catalogs, or nothing at all but calls what only PostgreSQL has."""
    names = [(t.db.lower(), t.name.lower()) for t in tree.find_all(exp.Table)]
    inner = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    names = [(db, name) for db, name in names if db or name not in inner]
    if any(db in ("pg_catalog", "information_schema") for db, _ in names):
        return True
    if any(not db and name in tables.NAMES for db, name in names):
        readable = asking.service.tables(asking.session)
        return not any(name in readable for db, name in names if not db)
    if [name for name in names if name[1]]:
        return False
    return any(isinstance(node, _OWN_NODES) or _function_name(node) in _OWN for node in tree.walk())


_GIVE_ROWS = (exp.Explode, exp.Unnest, exp.GenerateSeries, exp.ExplodingGenerateSeries)
_OWN_NODES = (
    exp.CurrentSchema, exp.CurrentUser, exp.CurrentDatabase, exp.CurrentCatalog, exp.SessionUser, exp.CurrentVersion,
    exp.CurrentRole, exp.ObjectIdentifier,
)  # fmt: skip


def _function_name(node: exp.Expr) -> str:
    return node.name.lower() if isinstance(node, exp.Anonymous) else ""


def _rewritten(tree: exp.Expr, rewriting: _Rewriting) -> exp.Expr:
    """The tree with every node rewritten, the inner ones first. Columns keep the names that PostgreSQL gives them."""
    for select in tree.find_all(exp.Select):
        named = [
            e if isinstance(e, _HAVE_NAMES) else exp.alias_(e.copy(), _name(e), quoted=True) for e in select.expressions
        ]
        select.set("expressions", named)
    for node in reversed(list(tree.walk(bfs=True))):
        made = rewriting(node)
        if made is node:
            continue
        if node is tree:
            tree = made
        else:
            node.replace(made)
    return tree


_HAVE_NAMES = (exp.Alias, exp.Column, exp.Star, exp.Aliases)


def _name(node: exp.Expr) -> str:
    """What PostgreSQL calls a column that has no name."""
    match node:
        case exp.Column() | exp.Anonymous():
            return node.name.lower()
        case exp.Dot(expression=inner) if isinstance(inner, exp.Func):
            return _name(inner)
        case exp.Dot() | exp.Paren() | exp.Bracket() | exp.Cast():
            inner = node.expression if isinstance(node, exp.Dot) else node.this
            found = _name(inner) if isinstance(inner, exp.Expr) else ""
            known = node.to.sql("postgres").lower().rpartition(".")[2] if isinstance(node, exp.Cast) else "?column?"
            return known if found == "?column?" else found
        case exp.Case():
            return "case"
        case exp.Subquery() | exp.Exists():
            return "exists" if isinstance(node, exp.Exists) else "?column?"
        case exp.CurrentVersion():
            return "version"
        case exp.Func():
            return node.sql_name().lower()
    return "?column?"


class _Rewriting:
    """From PostgreSQL's tree to one that DuckDB understands, node by node."""

    def __init__(self, asking: Asking, values: Sequence[object] | None) -> None:
        self._asking = asking
        self._values = values
        self.settings: list[tuple[str, str | None]] = []

    def __call__(self, node: exp.Expr) -> exp.Expr:
        """The node in place of one."""
        match node:
            case exp.Table():
                return self._table(node)
            case exp.Dot(this=exp.Identifier(this=schema), expression=inner) if str(schema).lower() in _SCHEMAS:
                return inner  # type: ignore[no-any-return]
            case exp.Column() if node.args.get("db") is not None:
                return exp.column(node.this, table=node.args["table"])
            case exp.Collate(this=inner):
                return inner  # type: ignore[no-any-return]
            case exp.Operator(this=left, expression=right):
                return self._operator(str(node.args["operator"]), left, right)
            case exp.RegexpLike(this=left, expression=right):
                return exp.Anonymous(this="regexp_matches", expressions=[left, right])
            case exp.Cast():
                return self._cast(node)
            case exp.CurrentSchema():
                return exp.Literal.string("public")
            case exp.CurrentUser() | exp.SessionUser() | exp.CurrentRole():
                return exp.Literal.string(self._asking.session.user)
            case exp.CurrentDatabase() | exp.CurrentCatalog():
                return exp.Literal.string(self._asking.database)
            case exp.CurrentVersion():
                return exp.Literal.string(_VERSION)
            case exp.Repeat() | exp.Pad():
                raise self._too_much(node.sql_name().lower())
            case exp.Anonymous():
                return self._function(node)
        return node

    @staticmethod
    def _too_much(name: str) -> Refused:
        """What DuckDB makes in one step cannot be interrupted, however long it is."""
        return Refused("0A000", f"the system catalogs are not asked with {name}")

    def _table(self, node: exp.Table) -> exp.Expr:
        db, name = node.db.lower(), node.name.lower()
        if isinstance(node.this, exp.Func) or not name:
            if db in _SCHEMAS:
                node.set("db", None)
            alias = node.args.get("alias")
            if alias is not None and not alias.columns:  # the name of the only column, too
                alias.set("columns", [alias.this.copy()])
            if isinstance(node.this, exp.Func) and not isinstance(node.this, _GIVE_ROWS):
                return exp.Subquery(this=exp.select(node.this), alias=alias)
            return node
        if db not in ("", *_SCHEMAS) or (not db and name not in tables.NAMES):
            return node
        key = f"information_schema_{name}" if db == "information_schema" else name
        if key not in tables.NAMES:
            raise Refused("42P01", f'relation "{db + "." if db else ""}{name}" does not exist')
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name))
        return exp.Table(
            this=exp.to_identifier(f"_{key}"),
            alias=alias,
            joins=node.args.get("joins"),
            laterals=node.args.get("laterals"),
        )

    def _operator(self, name: str, left: exp.Expr, right: exp.Expr) -> exp.Expr:
        sign = name.rpartition(".")[2]
        match sign:
            case "~" | "!~":
                found: exp.Expr = exp.Anonymous(this="regexp_matches", expressions=[left, right])
                return exp.Not(this=found) if sign == "!~" else found
            case "~*" | "!~*":
                flag = exp.Literal.string("i")
                found = exp.Anonymous(this="regexp_matches", expressions=[left, right, flag])
                return exp.Not(this=found) if sign == "!~*" else found
            case "~~":
                return exp.Like(this=left, expression=right)
            case "!~~":
                return exp.Not(this=exp.Like(this=left, expression=right))
            case "=":
                return exp.EQ(this=left, expression=right)
            case "<>":
                return exp.NEQ(this=left, expression=right)
        raise Refused("0A000", f"the operator {sign} is not known to the system catalogs")

    def _cast(self, node: exp.Cast) -> exp.Expr:
        name = node.to.sql("postgres").lower().replace('"', "")
        name, _, many = name.rpartition(".")[2].partition("[")
        inner = node.this
        if name in ("regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole"):
            around = node.parent
            named = isinstance(around, exp.Cast) and around.to.sql("postgres").lower().rpartition(".")[2] in _TEXTS
            if many:
                return exp.cast(inner, "BIGINT[]")
            kind = "text" if named else "oid"
            return exp.Anonymous(this=f"_{name}_{kind}", expressions=[inner]) if name in _REG else inner
        if name in _TEXTS:
            return exp.cast(inner, "VARCHAR[]" if many else "VARCHAR")
        if name in ("oid", "xid", "int2vector", "oidvector"):
            return exp.cast(inner, "BIGINT[]" if many or "vector" in name else "BIGINT")
        return node

    def _function(self, node: exp.Anonymous) -> exp.Expr:
        name = node.name.lower()
        given = node.expressions
        match name:
            case "range":
                raise self._too_much(name)
            case "version":
                return exp.Literal.string(_VERSION)
            case "pg_backend_pid":
                return exp.Literal.number(self._asking.number)
            case "current_schemas":
                return exp.Array(expressions=[exp.Literal.string(s) for s in ("pg_catalog", "public")])
            case "getpgusername":
                return exp.Literal.string(self._asking.session.user)
            case "current_setting":
                return self._setting(given)
            case "set_config":
                return self._set_config(given)
            case "json_build_object":
                return exp.Anonymous(this="json_object", expressions=given)
            case "generate_subscripts":
                return exp.Anonymous(this="_generate_subscripts", expressions=given[:1])
        if name in _OWN:
            return exp.Anonymous(this=f"_{name}", expressions=given[: _OWN[name]])
        return node

    def _constant(self, node: exp.Expr) -> str | None:
        if isinstance(node, exp.Cast):
            return self._constant(node.this)
        if isinstance(node, exp.Literal):
            return node.name
        if isinstance(node, exp.Parameter) and self._values is not None and node.name.isdigit():
            number = int(node.name)
            found = self._values[number - 1] if 1 <= number <= len(self._values) else None
            return None if found is None else str(found)
        return None

    def _setting(self, given: Sequence[exp.Expr]) -> exp.Expr:
        name = (self._constant(given[0]) or "").lower() if given else ""
        known = {key.lower(): value for key, value in self._asking.parameters.items()}
        if name in known:
            return exp.Literal.string(known[name])
        if len(given) > 1 or self._values is None:
            return exp.cast(exp.null(), "VARCHAR")
        raise Refused("42704", f'unrecognized configuration parameter "{name}"')

    def _set_config(self, given: Sequence[exp.Expr]) -> exp.Expr:
        if len(given) != 3:
            raise Refused("42883", "set_config takes a name, a value, and whether it is for the transaction only")
        name, value = self._constant(given[0]), self._constant(given[1])
        if self._values is not None and name is not None:
            self.settings.append((name, value))
        return exp.cast(exp.Literal.string(value or ""), "VARCHAR")


_VERSION = f"PostgreSQL {SERVER_VERSION}"
_SCHEMAS = ("pg_catalog", "information_schema")
_TEXTS = frozenset({
    "text", "name", "char", "varchar", "bpchar", "sql_identifier", "character_data", "yes_or_no", "cardinal_number",
    "aclitem", "regexp", "unknown", "cstring",
})  # fmt: skip
_REG = frozenset({"regclass", "regtype", "regnamespace", "regrole"})

_NAME_OF_TYPE = """
    CASE WHEN zt.typelem <> 0 AND zt.typlen = -1
             THEN (SELECT ze.long FROM _types_named ze WHERE ze.oid = zt.typelem) || '[]'
         WHEN zt.oid = 1700 AND m > 4
             THEN 'numeric(' || ((m - 4) >> 16)::VARCHAR || ',' || ((m - 4) & 65535)::VARCHAR || ')'
         ELSE zt.long END"""
_MACROS = {
    "format_type": ("o, m", f"(SELECT {_NAME_OF_TYPE} FROM _types_named zt WHERE zt.oid = o::BIGINT)"),
    "pg_table_is_visible": ("o", "(SELECT zc.relnamespace <> 13001 FROM _pg_class zc WHERE zc.oid = o::BIGINT)"),
    "pg_type_is_visible": ("o", "TRUE"),
    "pg_function_is_visible": ("o", "TRUE"),
    "pg_collation_is_visible": ("o", "TRUE"),
    "pg_get_expr": ("e, o", "NULL::VARCHAR"),
    "pg_get_userbyid": ("o", "(SELECT zr.rolname FROM _pg_roles zr WHERE zr.oid = o::BIGINT)"),
    "pg_get_constraintdef": ("o", "(SELECT zc.definition FROM _pg_constraint zc WHERE zc.oid = o::BIGINT)"),
    "pg_get_indexdef": ("o", "(SELECT zi.definition FROM _pg_index zi WHERE zi.indexrelid = o::BIGINT)"),
    "pg_get_viewdef": ("o", "(SELECT zv.definition FROM _pg_matviews zv WHERE zv.oid = o::BIGINT)"),
    "pg_get_partkeydef": ("o", "NULL::VARCHAR"),
    "pg_get_ruledef": ("o", "NULL::VARCHAR"),
    "pg_get_triggerdef": ("o", "NULL::VARCHAR"),
    "pg_get_statisticsobjdef_columns": ("o", "NULL::VARCHAR"),
    "pg_get_serial_sequence": ("t, c", "NULL::VARCHAR"),
    "pg_get_function_result": ("o", "NULL::VARCHAR"),
    "pg_get_function_arguments": ("o", "NULL::VARCHAR"),
    "pg_get_function_identity_arguments": ("o", "NULL::VARCHAR"),
    "pg_encoding_to_char": ("o", "'UTF8'"),
    "pg_relation_is_publishable": ("o", "FALSE"),
    "pg_relation_size": ("o", "0::BIGINT"),
    "pg_total_relation_size": ("o", "0::BIGINT"),
    "pg_table_size": ("o", "0::BIGINT"),
    "pg_indexes_size": ("o", "0::BIGINT"),
    "pg_database_size": ("o", "0::BIGINT"),
    "pg_tablespace_location": ("o", "NULL::VARCHAR"),
    "pg_is_in_recovery": ("", "FALSE"),
    "pg_is_other_temp_schema": ("o", "FALSE"),
    "pg_my_temp_schema": ("", "0::BIGINT"),
    "pg_stat_get_numscans": ("o", "0::BIGINT"),
    "pg_postmaster_start_time": ("", "NULL::TIMESTAMP"),
    "pg_conf_load_time": ("", "NULL::TIMESTAMP"),
    "pg_advisory_unlock_all": ("", "NULL::VARCHAR"),
    "pg_advisory_lock": ("o", "NULL::VARCHAR"),
    "pg_advisory_unlock": ("o", "TRUE"),
    "pg_try_advisory_lock": ("o", "TRUE"),
    "pg_sequence_last_value": ("o", "NULL::BIGINT"),
    "pg_column_is_updatable": ("o, n, x", "FALSE"),
    "obj_description": ("o", "(SELECT zd.description FROM _pg_description zd WHERE zd.objoid = o::BIGINT AND "
        "zd.objsubid = 0)"),
    "shobj_description": ("o, c", "NULL::VARCHAR"),
    "col_description": ("o, n", "NULL::VARCHAR"),
    "has_table_privilege": ("o", "TRUE"),
    "has_schema_privilege": ("o", "TRUE"),
    "has_database_privilege": ("o", "TRUE"),
    "has_column_privilege": ("o", "TRUE"),
    "has_function_privilege": ("o", "TRUE"),
    "has_any_column_privilege": ("o", "TRUE"),
    "has_sequence_privilege": ("o", "TRUE"),
    "pg_has_role": ("o", "TRUE"),
    "array_to_string": ("a, s", "list_aggregate(a::VARCHAR[], 'string_agg', s)"),
    "_pg_expandarray": ("a", "unnest(list_transform(range(1, len(a) + 1), lambda zi: {'x': a[zi], 'n': zi}))"),
    "array_lower": ("a, n", "CASE WHEN len(a) > 0 THEN 1 END"),
    "array_upper": ("a, n", "nullif(len(a), 0)"),
    "quote_ident": ("s", "CASE WHEN regexp_full_match(s, '[a-z_][a-z0-9_$]*') THEN s ELSE '\"' || replace(s, '\"', "
        "'\"\"') || '\"' END"),
    "parse_ident": ("s", "string_split(replace(s, '\"', ''), '.')"),
    "quote_literal": ("s", "'''' || replace(s, '''', '''''') || ''''"),
    "to_regclass": ("s", "(SELECT zc.oid FROM _pg_class zc WHERE zc.relname = _bare(s) LIMIT 1)"),
    "to_regtype": ("s", "(SELECT zt.oid FROM _types_named zt WHERE zt.typname = _bare(s) OR zt.long = _bare(s) "
        "LIMIT 1)"),
    "to_regnamespace": ("s", "(SELECT zn.oid FROM _pg_namespace zn WHERE zn.nspname = _bare(s) LIMIT 1)"),
    "inet_server_addr": ("", "NULL::VARCHAR"),
    "inet_server_port": ("", "NULL::INTEGER"),
    "inet_client_addr": ("", "NULL::VARCHAR"),
    "inet_client_port": ("", "NULL::INTEGER"),
    "txid_current": ("", "1::BIGINT"),
    "pg_current_xact_id": ("", "1::BIGINT"),
    "pg_size_pretty": ("n", "n::VARCHAR || ' bytes'"),
    "pg_char_to_encoding": ("s", "6"),
    "pg_options_to_table": ("o", "NULL::VARCHAR"),
    "aclexplode": ("o", "NULL::VARCHAR"),
    "pg_notification_queue_usage": ("", "0.0"),
}  # fmt: skip
"""Functions of PostgreSQL: their parameters, and what DuckDB computes. Further arguments are left out."""
_HELPERS = {
    "_bare": ("s", "regexp_replace(replace(s::VARCHAR, '\"', ''), '^.*\\.', '')"),
    "_generate_subscripts": ("a", "unnest(generate_series(1, len(a)))"),
    "_regclass_oid": ("s", "coalesce(try_cast(s AS BIGINT), (SELECT zc.oid FROM _pg_class zc WHERE zc.relname = "
        "_bare(s) LIMIT 1))"),
    "_regclass_text": ("s", "coalesce((SELECT zc.relname FROM _pg_class zc WHERE zc.oid = try_cast(s AS BIGINT) "
        "LIMIT 1), s::VARCHAR)"),
    "_regtype_oid": ("s", "coalesce(try_cast(s AS BIGINT), _to_regtype(s::VARCHAR))"),
    "_regtype_text": ("s", "coalesce(_format_type(try_cast(s AS BIGINT), -1), s::VARCHAR)"),
    "_regnamespace_oid": ("s", "coalesce(try_cast(s AS BIGINT), _to_regnamespace(s::VARCHAR))"),
    "_regnamespace_text": ("s", "coalesce((SELECT zn.nspname FROM _pg_namespace zn WHERE zn.oid = try_cast(s AS "
        "BIGINT) LIMIT 1), s::VARCHAR)"),
    "_regrole_oid": ("s", "coalesce(try_cast(s AS BIGINT), (SELECT zr.oid FROM _pg_roles zr WHERE zr.rolname = "
        "_bare(s) LIMIT 1))"),
    "_regrole_text": ("s", "coalesce((SELECT zr.rolname FROM _pg_roles zr WHERE zr.oid = try_cast(s AS BIGINT) "
        "LIMIT 1), s::VARCHAR)"),
}  # fmt: skip
_OF_MACROS = frozenset({"pg_class", "pg_roles", "pg_constraint", "pg_index", "pg_matviews"})
"""Tables of a session that macros read."""
_OWN = {name: len([p for p in arguments.split(",") if p]) for name, (arguments, _) in _MACROS.items()} | {
    "version": 0, "pg_backend_pid": 0, "current_schemas": 1, "current_setting": 2, "set_config": 3, "getpgusername": 0,
}  # fmt: skip


def _new_database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={
        "threads": 1, "memory_limit": _MEMORY, "enable_external_access": False, "autoload_known_extensions": False,
        "autoinstall_known_extensions": False, "allow_community_extensions": False,
    })  # fmt: skip
    connection.execute("SET python_enable_replacements = false")
    for name, table in tables.always().items():
        connection.register("given", table)
        connection.execute(f'CREATE TABLE "_{name}" AS SELECT * FROM given')
        connection.unregister("given")
    helpers = {"_bare": _HELPERS["_bare"], **{f"_{n}": m for n, m in _MACROS.items()}, **_HELPERS}
    # The macros are made over tables that each connection has; here empty ones stand in for them.
    for name, schema in tables.SCHEMAS.items():
        connection.register(f"_{name}", schema.empty_table())
    for name, (arguments, body) in helpers.items():
        connection.execute(f"CREATE OR REPLACE MACRO {name}({arguments}) AS {body}")
    for name in tables.SCHEMAS:
        connection.unregister(f"_{name}")
    return connection
