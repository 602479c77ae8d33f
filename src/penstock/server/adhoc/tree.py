"""The parsed statement, as DuckDB writes it in JSON: which tables it names, what is refused, what is replaced.

DuckDB itself parses and writes the text, so there is no second parser to disagree with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock import functions
from penstock.model.errors import BindError, CatalogError, PenstockError, Position, suggest, typo
from penstock.model.types import INTERVAL, STRING, TIMESTAMP, DataType, Kind, decimal
from penstock.scalar.casts import cast_value
from penstock.scalar.context import RowError
from penstock.scalar.expr import Literal
from penstock.server.adhoc import guards, meaning

Node = dict[str, Any]
PUBLIC = "public"
"""The schema that drivers think everything but ``sys`` is in."""

_QUERIES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_FROM = frozenset({"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EMPTY", "EXPRESSION_LIST"})
_CLASSES = frozenset({
    "COLUMN_REF", "CONSTANT", "FUNCTION", "OPERATOR", "CAST", "COMPARISON", "CONJUNCTION", "CASE", "BETWEEN",
    "SUBQUERY", "STAR", "WINDOW", "PARAMETER", "POSITIONAL_REFERENCE", "TYPE",
})  # fmt: skip
_MODIFIERS = frozenset({
    "ORDER_MODIFIER", "LIMIT_MODIFIER", "DISTINCT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "ORDER_DEFAULT", "ASCENDING",
    "DESCENDING",
})  # fmt: skip
_OPERATORS_REFUSED = {"ARRAY_SLICE", "STRUCT_EXTRACT", "ARROW", "UNPACK"}
_NOWHERE = 2**64 - 1
_PARTS = 4
_EXPANSION = 20_000
"""How often DuckDB may look at one expression because of the macros around it."""
_DATE_LIKE = re.compile(r"\s*\d{1,5}-\d")
_PLAIN_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")
_INTERVALS: dict[str, int] = {
    "to_weeks": 604_800_000_000, "to_days": 86_400_000_000, "to_hours": 3_600_000_000, "to_minutes": 60_000_000,
    "to_seconds": 1_000_000, "to_milliseconds": 1_000, "to_microseconds": 1,
}  # fmt: skip
_MONTHS = frozenset({"to_months", "to_quarters", "to_years", "to_decades", "to_centuries", "to_millennia"})


class Statement:
    """One parsed SELECT, rewritten in place by ``rewrite``."""

    def __init__(
        self, text: str, tree: Node, declare: Callable[..., str], written: Callable[[Node], str], zone: str
    ) -> None:
        self.text = text
        self.tree = tree
        self._declare = declare
        self._written = written
        self._zone = zone
        self._tables: dict[str, str] = {}
        self._known: Mapping[str, object] = {}
        self._names: dict[str, str] = {}
        self.reals: frozenset[str] = frozenset()
        self.columns: dict[str, int] = {}
        """Where each column is first named, for errors that DuckDB finds."""

    @property
    def parameters(self) -> int:
        """How many values the statement waits for."""
        return max((int(p["value"]) for p in self.tree["named_param_map"]), default=0)

    def rewrite(self, tables: Mapping[str, object]) -> dict[str, str]:
        """Name only tables of the mapping and only functions of the lists; the names, and those that DuckDB sees."""
        self._known = tables
        self._names = {}
        for name in tables:
            self._names.setdefault(name.lower(), name)
        self._query(self.tree["node"], frozenset())
        if _expansion(self.tree["node"]) > _EXPANSION:
            raise guards.too_deep()
        return self._tables

    def where(self, node: Node) -> Position | None:
        """The place of a node in the text; DuckDB counts bytes."""
        return self.position(int(node.get("query_location", _NOWHERE)), int(node.get("query_location_length") or 1))

    def position(self, start: int, length: int = 1) -> Position | None:
        data = self.text.encode()
        if not 0 <= start <= len(data):
            return None
        before = data[:start].decode(errors="ignore")
        shown = data[start : start + length].decode(errors="ignore").split("\n")[0]
        return Position(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1, max(1, len(shown)))

    def _refuse(
        self, node: Node, what: str, hint: str | None = None, kind: type[PenstockError] = BindError
    ) -> PenstockError:
        return kind(what, hint=hint).at(self.where(node), self.text)

    # Queries and tables

    def _query(self, node: Node, ctes: frozenset[str]) -> None:
        if node["type"] not in _QUERIES:
            raise self._refuse(node, "only SELECT is answered here")
        for entry in node["cte_map"]["map"]:
            inner = entry["value"]["query_node"]
            own = inner["type"] == "RECURSIVE_CTE_NODE"
            self._query(inner, ctes | {entry["key"].lower()} if own else ctes)
            ctes |= {entry["key"].lower()}
        if node.get("sample"):
            raise self._refuse(node, "an ad-hoc SELECT reads whole tables, without a sample")
        if node["type"] == "RECURSIVE_CTE_NODE" and node.get("cte_name"):
            ctes |= {str(node["cte_name"]).lower()}
        for name, value in node.items():
            if name == "cte_map":
                continue
            if name in ("select_list", "select_expressions"):
                node[name] = [self._named(item, self._expr(item, ctes)) for item in value]
            else:
                node[name] = self._any(value, ctes)

    def _any(self, value: Any, ctes: frozenset[str]) -> Any:
        """Whatever stands in a node: an expression, a query, a table, or a list or record of such."""
        if isinstance(value, list):
            return [self._any(v, ctes) for v in value]
        if not isinstance(value, dict):
            return value
        if "class" in value:
            return self._expr(value, ctes)
        kind = value.get("type")
        if isinstance(kind, str):
            if kind in _QUERIES or kind.endswith("_NODE"):
                self._query(value, ctes)
                return value
            if kind in _FROM or "query_location" in value:
                return self._table(value, ctes)
            if kind not in _MODIFIERS and "node" not in value:
                raise self._refuse(value, f"{kind} is not part of an ad-hoc SELECT")
        return {k: self._any(v, ctes) for k, v in value.items()}

    def _table(self, node: Node, ctes: frozenset[str]) -> Node:
        kind = node["type"]
        if kind not in _FROM:
            raise self._refuse(node, "only SELECT is answered here", "SHOW and DESCRIBE are statements of their own")
        if node.get("sample"):
            raise self._refuse(node, "an ad-hoc SELECT reads whole tables, without a sample")
        if kind == "BASE_TABLE":
            return self._base(node, ctes)
        if kind == "TABLE_FUNCTION":
            function = node["function"]
            name = str(function.get("function_name", "")).lower()
            if function.get("class") != "FUNCTION" or name not in meaning.TABLES or len(_path(function)) > 1:
                raise self._refuse(
                    function, f"no function `{name}` gives rows here",
                    "there are `range`, `generate_series` and `unnest`; tables are streams, relations and queries",
                )  # fmt: skip
            for argument in function["arguments"]:
                argument["expression"] = self._expr(argument["expression"], ctes)
            return node
        return {k: self._any(v, ctes) for k, v in node.items()}

    def _base(self, node: Node, ctes: frozenset[str]) -> Node:
        path = [str(p) for p in _path(node)] or [str(node["table_name"])]
        if node.get("at_clause"):
            raise self._refuse(node, "an ad-hoc SELECT reads what stands now, without AT")
        if len(path) == 1 and path[0].lower() in ctes:
            return node
        named = ".".join(path)
        if path[0].lower() == PUBLIC and len(path) == 2 and named.lower() not in self._names:
            named = path[1]
        known = named if named in self._known else self._names.get(named.lower())
        if known is None:
            raise self._refuse(
                node, f"no stream, relation or query `{named}`", suggest(named, self._known), CatalogError
            )
        seen = self._tables.setdefault(known, f"table {len(self._tables)}")
        return {
            **node,
            "alias": node["alias"] or path[-1],
            "schema_name": "",
            "catalog_name": "",
            "table_name": seen,
            "qualified_name": {"path": [seen]},
        }

    # Expressions

    def _named(self, before: Node, after: Node) -> Node:
        """A column of a SELECT list keeps the name that its text gives, not the one of what replaces it."""
        if after is before or before["alias"] or before["class"] in ("COLUMN_REF", "STAR", "CONSTANT", "PARAMETER"):
            return after
        while before["class"] == "CAST":
            before = before["child"]
        if before["class"] == "COLUMN_REF":
            name = str(before["column_names"][-1])
        elif before["class"] in ("FUNCTION", "WINDOW") and not before.get("is_operator"):
            name = "count" if before["function_name"] == "count_star" else str(before["function_name"])
        elif any(n.get("class") == "SUBQUERY" for n in walk(before)):
            name = "?column?"
        else:
            name = self._written(_selecting(before)).removeprefix("SELECT ")
        return {**after, "alias": name}

    def _expr(self, node: Node, ctes: frozenset[str]) -> Node:
        kind = node["class"]
        if kind not in _CLASSES or (kind == "OPERATOR" and node["type"] in _OPERATORS_REFUSED):
            raise self._refuse(node, f"{node['type'].replace('_', ' ')} is not part of an ad-hoc SELECT")
        match kind:
            case "SUBQUERY":
                self._query(node["subquery"]["node"], ctes)
                return {**node, "child": node["child"] and self._expr(node["child"], ctes)}
            case "FUNCTION" | "WINDOW":
                return self._call(node, ctes)
            case "CAST":
                return self._cast(node, ctes)
            case "COLUMN_REF":
                return self._column(node)
            case "COMPARISON" | "BETWEEN":
                self._check_times(node)
        return {k: self._any(v, ctes) for k, v in node.items()}

    def _column(self, node: Node) -> Node:
        names = [str(n) for n in node["column_names"]]
        if len(names) > _PARTS:
            raise self._refuse(node, "a column is named by at most four words")
        self.columns.setdefault(names[-1].lower(), int(node["query_location"]))
        if len(names) == 1 and names[0].lower() in ("current_timestamp", "current_date"):
            return {**_function(macro_name(meaning.CANONICAL[names[0].lower()])), "alias": node["alias"] or names[0]}
        if len(names) > 2 and (".".join(names[:2]).lower() in self._names or names[0].lower() == PUBLIC):
            return {**node, "column_names": names[1:]}
        return node

    def _check_times(self, node: Node) -> None:
        """A text that is compared becomes a time by DuckDB's rules: only where CQL's are the same."""
        for child in (node.get(k) for k in ("left", "right", "input", "lower", "upper")):
            text = constant_text(child) if child else None
            if text is None or not _DATE_LIKE.match(text):
                continue
            if self._zone != "UTC" or not _PLAIN_DATE.fullmatch(text):
                raise self._refuse(child or node, f"'{text}' does not say what it is", f"write TIMESTAMP '{text}'")

    def _call(self, node: Node, ctes: frozenset[str]) -> Node:
        written = str(node["function_name"]).lower()
        if len(_path(node)) > 1:
            raise self._refuse(node, f"no function `{'.'.join(map(str, _path(node)))}`")
        if written in _INTERVALS or written in _MONTHS:
            return self._interval(node, written, ctes)
        if written in meaning.NEGATED:
            name, negated = meaning.NEGATED[written], True
        else:
            name, negated = meaning.CANONICAL.get(written, written), False
        window = node["class"] == "WINDOW"
        if window and written in ("first_value", "last_value"):
            name = written
        original = node
        node = {k: v if k == "arguments" else self._any(v, ctes) for k, v in node.items()}
        args = [self._expr(a["expression"], ctes) for a in original["arguments"]]
        if any(a["name"] for a in original["arguments"]):
            raise self._refuse(original, f"`{written}` takes its arguments by position")
        made = self._meant(original, node, name, written, args, window)
        if negated:
            return _operator("OPERATOR_NOT", made, like=original)
        return {**made, "query_location": original["query_location"], "alias": original["alias"]}

    def _meant(self, original: Node, node: Node, name: str, written: str, args: list[Node], window: bool) -> Node:
        if name == "count_if":  # of no rows it is NULL in DuckDB
            return _operator("OPERATOR_COALESCE", _renamed(node, name, args), _constant(0), like=original)
        if name in meaning.AGGREGATES or name in meaning.BEYOND:
            return _renamed(node, meaning.AGGREGATES.get(name, name), args)
        if name in meaning.CHOSEN:
            if len(args) != 1:
                raise self._refuse(original, f"`{written}` takes 1 argument, got {len(args)}")
            over = [_renamed(node, f, args) for f in ("sum", "list", "count")]
            return _function(meaning.CHOSEN[name], args[0], *over)
        if name in meaning.LISTED:
            wanted = 2 if name == "percentile" else 1
            if len(args) != wanted:
                raise self._refuse(original, f"`{written}` takes {wanted} argument{'s'[: wanted - 1]}, got {len(args)}")
            return _function(f"cql_{name}_list", _renamed(node, "list", args[:1]), *args[1:])
        if window or node.get("distinct") or node.get("filter") or node["order_bys"]["orders"]:
            raise self._refuse(original, f"`{written}` is no aggregate")
        self._check_reals(original, name, written)
        plain = self._scalar(original, name, written, args)
        if plain is not None:
            return plain
        if name in meaning.REFUSED:
            raise self._refuse(original, f"`{written}` is not there in an ad-hoc SELECT", meaning.REFUSED[name])
        near = typo(written, functions_known())
        hint = f"did you mean `{near}`?" if near else None
        raise self._refuse(original, f"no function `{written}` in an ad-hoc SELECT", hint)

    def _scalar(self, original: Node, name: str, written: str, args: list[Node]) -> Node | None:
        if name in meaning.COMPUTED:
            if name.startswith("regexp_") and len(args) > 1:
                self._check_pattern(original, name, args)
            for signature in meaning.COMPUTED[name]:
                if len(signature) == len(args):
                    return _function(self._declare(name, signature), *args)
            raise self._arity(original, written, [len(s) for s in meaning.COMPUTED[name]], len(args))
        if name in meaning.DATED:
            (signature,) = meaning.DATED[name]
            if len(signature) != len(args):
                raise self._arity(original, written, [len(signature)], len(args))
            return self._timed(name, None, args, (0,), signature)
        if name in meaning.UNITS:
            unit = constant_text(args[0]) if args else None
            at = meaning.UNITS[name]
            if unit is None or len(args) != 1 + len(at):
                raise self._refuse(original, f"`{written}` takes a unit as a constant text, and {len(at)} of time")
            return self._timed(name, unit, args[1:], tuple(range(len(at))), (TIMESTAMP,) * len(at))
        if name in meaning.EITHER:
            if len(args) != 1:
                raise self._arity(original, written, [1], len(args))
            return _function(self._overloaded(original, name, args), *args)
        if name in meaning.TYPED:
            if any(has_aggregate(a) for a in args[:1]):
                if not only_double(args[0]):
                    raise self._apart(original, written)
                if name == "round" and len(args) == 1:
                    args = [args[0], _constant(0)]
                return _function(meaning.OF_DOUBLE[name], *args)
            return _function(f"cql_{name}", *args)
        if name in ("||", "concat_ws"):
            texts = [a if is_text(a) else _function("cql_text", a) for a in args]
            if name == "concat_ws":
                return _function(name, *texts)
            return _joined(texts)
        if name == "current_timezone" and not args:
            return {**_constant(0), "literal": {"kind": "STRING", "text": self._zone}}
        if name in meaning.NATIVE:
            macro = meaning.NATIVE[name]
            made = _renamed({**original, "function_name": name}, macro_name(name) if macro else name, args)
            if macro is not None:
                made["is_operator"] = False
            if name in meaning.FAILING or macro is not None:
                inside = any(has_aggregate(a) or has_subquery(a) for a in args)
                if name == "%" and inside:
                    return _function("cql_remainder_any", *args)
                if macro is None and not inside:
                    return _operator("OPERATOR_TRY", made, like=original)
            return made
        return None

    def _check_pattern(self, node: Node, name: str, args: list[Node]) -> None:
        pattern = constant_text(args[1])
        if pattern is None:
            raise self._refuse(node, f"ad hoc, `{name}` takes its pattern as a constant text")
        new = [Literal(constant_text(a), STRING) for a in args[2:] if constant_text(a) is not None]
        if name != "regexp_replace" or new:
            try:
                guards.repetitions(pattern)
                functions.resolve(name, [Literal("", STRING), Literal(pattern, STRING), *new])
            except BindError as error:
                raise error.at(self.where(args[1]), self.text) from None

    def _arity(self, node: Node, name: str, wanted: list[int], got: int) -> PenstockError:
        return self._refuse(node, f"`{name}` takes {' or '.join(map(str, wanted))} arguments, got {got}")

    def _apart(self, node: Node, name: str) -> PenstockError:
        return self._refuse(
            node, f"ad hoc, `{name}` does not take an aggregate directly",
            f"name the aggregate in a sub-query: SELECT {name}(a) FROM (SELECT … AS a FROM …)",
        )  # fmt: skip

    def _timed(
        self, name: str, unit: str | None, args: list[Node], at: tuple[int, ...], types: meaning.Signature
    ) -> Node:
        """A function of time: a DATE is taken as such, which matters where clocks are not those of UTC."""
        if (self._zone == "UTC" and name != "epoch") or any(has_aggregate(args[i]) for i in at):
            return _function(self._declare(name, types, unit), *args)
        return _function(self._declare(name, types, unit, overloads=at), *args)

    def _overloaded(self, original: Node, name: str, args: list[Node]) -> str:
        if has_aggregate(args[0]):
            raise self._apart(original, name)
        return self._declare(name, None)

    def _check_reals(self, node: Node, name: str, written: str) -> None:
        """REAL columns are computed with as DOUBLE; where CQL would round to REAL, the text must say DOUBLE."""
        if not self.reals or name not in ("+", "-", "*", "%", "round", "||", "concat_ws", "trunc"):
            return
        args = [a["expression"] for a in node["arguments"]]
        mention = [bool(self.reals & set(column_names(a))) for a in args]
        if (all(mention) and args) if name in ("+", "-", "*", "%") and len(args) > 1 else any(mention):
            raise self._refuse(node, f"ad hoc, `{written}` does not compute with REAL", "write CAST(… AS DOUBLE)")

    def _interval(self, node: Node, name: str, ctes: frozenset[str]) -> Node:
        """INTERVAL '1.5' DAY: a constant, exactly."""
        value: Any = node["arguments"][0]["expression"]
        while value["class"] == "CAST" or (value["class"] == "FUNCTION" and value["function_name"] == "trunc"):
            value = value["child"] if value["class"] == "CAST" else value["arguments"][0]["expression"]
        text = _constant_value(value)
        if name in _MONTHS:
            if text is None or not re.fullmatch(r"-?\d+", text.strip()):
                raise self._refuse(node, "an INTERVAL of months has a whole constant number of them")
            return node
        if text is None:
            inner = self._expr(value, ctes)
            return _function("to_microseconds", _renamed_operator("*", inner, _constant(_INTERVALS[name])))
        unit = name.removeprefix("to_")
        return self._ticks(node, f"{text} {unit}")

    def _ticks(self, node: Node, text: str) -> Node:
        try:
            ticks = cast_value(text, STRING, INTERVAL)
        except RowError as e:
            raise self._refuse(node, str(e)) from None
        assert isinstance(ticks, int)
        return {**_function("to_microseconds", _constant(ticks)), "alias": node["alias"]}

    def _cast(self, node: Node, ctes: frozenset[str]) -> Node:
        name = str(node["type_expr"]["type_name"]).lower()
        text = constant_text(node["child"])
        if name == "interval":
            if text is None:
                raise self._refuse(node, "ad hoc, only a constant text becomes an INTERVAL", "write INTERVAL '1 hour'")
            return self._ticks(node, text)
        target = self._type(node, name)
        child = self._expr(node["child"], ctes)
        macro = self._declare("cast", None, target=target)
        if target.kind is Kind.STRING:
            made = child if is_text(child) else _function("cql_text", child)
        elif has_aggregate(child):
            made = _function(f"{macro}_any", child)
        else:
            made = _function(macro, child)
        return {**made, "alias": node["alias"], "query_location": node["query_location"]}

    def _type(self, node: Node, name: str) -> DataType:
        if name in ("decimal", "numeric"):
            sizes = [_constant_value(c) for c in node["type_expr"]["children"]]
            if len(sizes) == 2 and sizes[0] and sizes[1]:
                return decimal(int(sizes[0]), int(sizes[1]))
            if not sizes:
                return decimal(18, 3)
        found = meaning.TYPE_NAMES.get(name)
        if found is None or node["type_expr"]["children"]:
            hint = "write DOUBLE" if name in ("real", "float", "float4") else "the types are those of CQL"
            raise self._refuse(node, f"ad hoc, there is no CAST to {name.upper()}", hint)
        return found


_WORDS = {"%": "remainder", "/": "quotient", "||": "joined"}


def macro_name(name: str) -> str:
    """The macro that stands for one of DuckDB's functions or operators."""
    return f"cql_{_WORDS.get(name, name)}"


def _expansion(node: Any) -> int:
    """How often the innermost expressions are looked at: a macro names its arguments again and again."""
    if isinstance(node, list):
        return max(map(_expansion, node), default=1)
    if not isinstance(node, dict):
        return 1
    below = max(map(_expansion, node.values()), default=1)
    name = str(node.get("function_name", "")) if node.get("class") == "FUNCTION" else ""
    return below * (_REPEATED.get(name) or (4 if name.startswith("cql_cast_") or name.endswith("_typed") else 1))


_REPEATED = {"cql_text": 7, "cql_remainder": 4, "cql_sign": 4, "cql_sum": 4, "cql_avg": 4}
_REPEATED |= dict.fromkeys((f"cql_{name}" for name in (*meaning.TYPED, *meaning.EITHER)), 4)


def is_text(node: Node) -> bool:
    """Whether an expression has surely a text as its value."""
    name = str(node.get("function_name", "")) if node["class"] == "FUNCTION" else ""
    return constant_text(node) is not None or name in ("||", "concat_ws", "cql_text") or name in _TEXTS


_TEXTS = {f"cql_{n}_{k}" for n in ("lower", "upper", "substr", "replace", "trim", "lpad", "rpad") for k in (1, 2, 3)}


def functions_known() -> list[str]:
    """Every name that an ad-hoc SELECT may call."""
    here: set[str] = {*meaning.COMPUTED, *meaning.DATED, *meaning.UNITS, *meaning.EITHER, *meaning.NATIVE}
    here |= {*meaning.TYPED, *meaning.LISTED, *meaning.CHOSEN, *meaning.AGGREGATES, *meaning.BEYOND}
    others = {alias for alias, name in meaning.CANONICAL.items() if name in here}
    return sorted(n for n in here | others if n[0].isalpha())


def _path(node: Node) -> list[Any]:
    return list((node.get("qualified_name") or {}).get("path") or ())


def walk(node: Any, *, into_queries: bool = False) -> Iterator[Node]:
    """The records of an expression, without those of its sub-queries."""
    if isinstance(node, list):
        for item in node:
            yield from walk(item, into_queries=into_queries)
    elif isinstance(node, dict):
        yield node
        if node.get("class") != "SUBQUERY" or into_queries:
            for value in node.values():
                yield from walk(value, into_queries=into_queries)


_AGGREGATED = frozenset({*meaning.AGGREGATES, "sum", "list", *meaning.AGGREGATES_BEYOND})


def has_aggregate(node: Node) -> bool:
    """Whether an aggregate or a window function stands in the expression."""
    return any(
        n.get("class") == "WINDOW" or (n.get("class") == "FUNCTION" and n["function_name"] in _AGGREGATED)
        for n in walk(node)
    )


def has_subquery(node: Node) -> bool:
    return any(n.get("class") == "SUBQUERY" for n in walk(node))


def only_double(node: Node) -> bool:
    """Whether the expression is one aggregate that always gives a DOUBLE."""
    name = str(node.get("function_name", ""))
    return name == "cql_avg" or (name.startswith("cql_") and name.endswith("_list"))


def column_names(node: Node) -> Iterator[str]:
    """The columns that an expression names, but for those whose CAST says another type."""
    if isinstance(node, dict) and node.get("class") == "CAST":
        return
    if isinstance(node, dict) and node.get("class") == "COLUMN_REF":
        yield str(node["column_names"][-1]).lower()
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        if isinstance(value, dict | list):
            yield from column_names(value)  # type: ignore[arg-type]


def constant_text(node: Node) -> str | None:
    """A constant text, or None."""
    if node["class"] == "CONSTANT" and node["literal"]["kind"] == "STRING":
        return str(node["literal"]["text"])
    return None


def _constant_value(node: Node) -> str | None:
    if node["class"] == "FUNCTION" and node["function_name"] == "-" and len(node["arguments"]) == 1:
        inner = _constant_value(node["arguments"][0]["expression"])
        return None if inner is None else f"-{inner}"
    if node["class"] != "CONSTANT" or node["literal"]["kind"] not in ("STRING", "INTEGER", "NUMERIC"):
        return None
    return str(node["literal"]["text"])


def _constant(value: int) -> Node:
    literal = {"kind": "INTEGER", "text": str(abs(value))}
    made: Node = {
        "class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "query_location": _NOWHERE,
        "query_location_length": 0, "literal": literal,
    }  # fmt: skip
    return made if value >= 0 else _renamed_operator("-", made)


def _selecting(item: Node) -> Node:
    """SELECT of one expression, without a table."""
    node: Node = {
        "type": "SELECT_NODE", "modifiers": [], "cte_map": {"map": []}, "select_list": [item],
        "from_table": {"type": "EMPTY", "alias": "", "sample": None, "query_location": _NOWHERE,
                       "query_location_length": 0},
        "where_clause": None, "group_expressions": [], "group_sets": [], "aggregate_handling": "STANDARD_HANDLING",
        "having": None, "sample": None, "qualify": None,
    }  # fmt: skip
    return {"node": node, "named_param_map": []}


def _function(name: str, *args: Node) -> Node:
    return {
        "class": "FUNCTION", "type": "FUNCTION", "alias": "", "query_location": _NOWHERE, "query_location_length": 0,
        "function_name": name, "schema": "", "filter": None, "order_bys": {"type": "ORDER_MODIFIER", "orders": []},
        "distinct": False, "is_operator": False, "export_state": False, "catalog": "",
        "arguments": [{"name": "", "expression": {**a, "alias": ""}} for a in args], "qualified_name": {"path": [name]},
    }  # fmt: skip


def _renamed_operator(name: str, *args: Node) -> Node:
    return {**_function(name, *args), "is_operator": True}


def _renamed(node: Node, name: str, args: list[Node]) -> Node:
    """The same call, with its FILTER and OVER, of another function."""
    return {
        **node, "alias": "", "function_name": name, "qualified_name": {"path": [name]},
        "arguments": [{"name": "", "expression": {**a, "alias": ""}} for a in args],
    }  # fmt: skip


def _joined(texts: list[Node]) -> Node:
    made = texts[0]
    for text in texts[1:]:
        made = _renamed_operator("||", made, text)
    return made


def _operator(kind: str, *children: Node, like: Node) -> Node:
    return {
        "class": "OPERATOR", "type": kind, "alias": like["alias"], "query_location": like["query_location"],
        "query_location_length": 0, "children": [{**c, "alias": ""} for c in children],
    }  # fmt: skip
