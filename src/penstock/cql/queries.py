"""From a query's tree to its logical plan.

``QueryBinder.query`` gives the plan of a whole query with its output; ``relation`` gives the plan of a sub-query
that is inlined. A sub-query with a relation-to-stream operator of its own, or with a window on it, becomes a
``QueryStream``; everything else in FROM is part of the plan around it and shares its instants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from penstock.catalog import Catalog, Unread
from penstock.cql.ast import Emit, PlanObject, StreamWindow
from penstock.cql.blocks import SelectBinder, refers_outwards, unify
from penstock.cql.expressions import ExpressionBinder, declared_names, identifier
from penstock.cql.padding import typed_nulls
from penstock.cql.plan_objects import plan_of_object
from penstock.cql.scope import Scope
from penstock.cql.subqueries import SubQuery
from penstock.cql.text import position_of
from penstock.cql.windows import bind_window
from penstock.model.errors import BindError, CatalogError, PenstockError, suggest
from penstock.model.schema import Clock
from penstock.plan.derive import is_monotonic
from penstock.plan.nodes import (
    Node,
    Output,
    Project,
    Query,
    QueryStream,
    SetOp,
    Stream,
    Window,
    bounded_windows,
    stream_scans,
    streams,
)
from penstock.plan.window import Session, Unbounded, WindowSpec
from penstock.scalar.expr import Column

_TAIL = ("order", "limit", "offset")
_SET_KINDS = {exp.Union: "union", exp.Except: "except", exp.Intersect: "intersect"}


@dataclass(frozen=True)
class Source:
    """An entry of FROM, bound: its plan, its name there, what it is, and which of its columns CQL cannot read."""

    node: Node
    alias: str
    what: str
    unread: Unread | None = None


class QueryBinder:
    """Binds the queries of one statement; positions of its sub-query streams count up from the catalog's end."""

    def __init__(self, catalog: Catalog, ctes: dict[str, exp.Expr] | None = None) -> None:
        self.catalog = catalog
        self.ctes = ctes or {}
        self._stream_count = 0
        self._aliases: dict[str, str] = {}  # what MASTER may call a stream
        self.reads: set[str] = set()

    def query(self, tree: exp.Expr) -> Query:
        """The plan of a complete query, its output decided."""
        emit, inner, masters, named = self._peel(tree)
        binder = self._with_ctes(named)
        query = binder._finish(binder._relation(inner, None), emit, masters, tree)
        self._absorb(binder)
        return query

    def relation(self, tree: exp.Expr, parent: Scope | None) -> Node:
        """The plan of a query used as a relation inside another one."""
        emit, inner, masters, named = self._peel(tree)
        if emit is not None:
            return Window(self._query_stream(tree, "query"), Unbounded())
        if masters:
            raise BindError(
                "MASTER belongs to a whole query", hint="write ISTREAM in the sub-query to make it a stream"
            ).at(position_of(masters[0]), None)
        binder = self._with_ctes(named)
        node = binder._relation(inner, parent)
        self._absorb(binder)
        return node

    def _absorb(self, other: QueryBinder) -> None:
        self.reads |= other.reads
        self._stream_count = max(self._stream_count, other._stream_count)
        self._aliases = {**other._aliases, **self._aliases}

    # -- what a query is wrapped in -------------------------------------------------------------

    def _peel(self, tree: exp.Expr) -> tuple[str | None, exp.Expr, list[exp.Expr], list[exp.With]]:
        """(ISTREAM… or None, the query inside, the identifiers of MASTER, the clauses WITH in which it stands)."""
        masters: list[exp.Expr] = []
        named: list[exp.With] = []
        emit: str | None = None
        while True:
            if (clause := tree.args.get("master")) is not None:
                masters = clause.expressions
            if (clause := tree.args.get("with_")) is not None:
                named.append(clause)
            if isinstance(tree, Emit):
                if emit is not None:
                    raise BindError(f"{emit} of {tree.args['kind']}", hint="one of them is enough").at(
                        position_of(tree), None
                    )
                emit, tree = tree.args["kind"], tree.this
            elif isinstance(tree, exp.Subquery) and not any(map(tree.args.get, ("stream_window", *_TAIL))):
                tree = tree.this
            else:
                break
        if isinstance(tree, exp.Select) and (modifiers := tree.args.get("operation_modifiers")):
            if emit is not None or len(modifiers) > 1:
                raise BindError("more than one of ISTREAM, DSTREAM, RSTREAM").at(position_of(tree), None)
            emit = modifiers[0].name
        return emit, tree, masters, named

    def _with_ctes(self, clauses: list[exp.With]) -> QueryBinder:
        if not clauses:
            return self
        binder = QueryBinder(self.catalog, dict(self.ctes))
        binder._stream_count = self._stream_count
        for clause in clauses:
            if clause.args.get("recursive"):
                raise BindError("a recursive query has no end on a stream").at(position_of(clause), None)
            for cte in clause.expressions:
                binder.ctes[identifier(cte.args["alias"].this)] = cte.this
        return binder

    def _finish(self, node: Node, emit: str | None, masters: list[exp.Expr], tree: exp.Expr) -> Query:
        try:
            query = Query(node, "changes", self._masters(node, masters), self._clock(node))
            output: Output
            if self._bounded(node) is not None:
                if masters:
                    raise BindError(
                        "MASTER does not go with windows that are answered at their end",
                        hint="use a sliding window (ROWS, RANGE)",
                    ).at(position_of(masters[0]), None)
                if emit == "DSTREAM":
                    raise BindError(
                        "windows that are answered at their end retract nothing, so DSTREAM is empty",
                        hint="leave DSTREAM out, or use a sliding window (ROWS, RANGE)",
                    )
                output = "windows"
            elif emit is not None:
                output = {"ISTREAM": "istream", "DSTREAM": "dstream", "RSTREAM": "rstream"}[emit]  # type: ignore[assignment]
            else:
                output = "istream" if is_monotonic(node) else "changes"
            return replace(query, output=output)
        except PenstockError as error:
            raise error.at(position_of(tree), None) from None

    def _masters(self, node: Node, names: list[exp.Expr]) -> tuple[str, ...]:
        if not names:
            return ()
        known = {stream.name for stream in streams(node)}
        found: list[str] = []
        for node_ in names:
            name = identifier(node_)
            name = self._aliases.get(name, name)
            if name not in known:
                raise BindError(f"MASTER `{name}` is not a stream of this query", hint=suggest(name, known)).at(
                    position_of(node_), None
                )
            if name not in found:
                found.append(name)
        return tuple(found)

    def _clock(self, node: Node) -> Clock:
        clocks: dict[Clock, str] = {}
        for stream in streams(node):
            if stream_scans(stream):
                clocks.setdefault(stream.clock, stream.name)
        if len(clocks) > 1:
            raise BindError(
                f"stream `{clocks['ticks']}` counts ticks and `{clocks['timestamp']}` has a TIMESTAMP clock",
                hint="streams of one query need one kind of clock",
            )
        # What reads relations alone goes with either kind.
        return next(iter(clocks), self.catalog.clock)

    def _bounded(self, node: Node) -> WindowSpec | None:
        windows = bounded_windows(node)
        specs = {w.spec for w in windows}
        if len(specs) > 1:
            raise BindError(
                "the windows of this query end at different times",
                hint="use the same window on both sides, or wrap one side: (SELECT ISTREAM … ) [RANGE …]",
            )
        if len(windows) > 1 and isinstance(windows[0].spec, Session):
            raise BindError("a query has at most one SESSION window", hint="wrap one side in ISTREAM(SELECT …)")
        return next(iter(specs), None)

    # -- relations ------------------------------------------------------------------------------

    def _relation(self, tree: exp.Expr, parent: Scope | None) -> Node:
        match tree:
            case exp.Select():
                return self._select(parent).relation(tree)
            case exp.SetOperation():
                return self._set_operation(tree, parent)
            case exp.Subquery():
                return self._select(parent).ordered(self.relation(tree.this, parent), tree)
            case exp.Values():
                raise BindError("VALUES is not a stream", hint="declare a RELATION and INSERT the rows")
            case exp.Table():
                return self.source(tree).node
        raise BindError(f"`{tree.sql()}` is not a query").at(position_of(tree), None)

    def _select(self, parent: Scope | None) -> SelectBinder:
        return SelectBinder(self.catalog, self.source, self.subquery, parent)

    def subquery(self, tree: exp.Expr, scope: Scope) -> SubQuery:
        """A sub-query of an expression; it may refer to columns of the query around it in its WHERE."""
        emit, inner, masters, named = self._peel(tree)
        if emit is None and not masters and isinstance(inner, exp.Select) and not named:
            block = self._select(scope)
            if (simple := block.correlated(inner)) is not None:
                return simple
        try:
            return SelectBinder.uncorrelated(self.relation(tree, None))
        except BindError as error:
            if error.unknown is None or scope.find(*error.unknown) is None:
                raise
            raise refers_outwards().at(error.position, None) from None

    def _set_operation(self, tree: exp.SetOperation, parent: Scope | None) -> Node:
        tree = typed_nulls(tree, lambda side: QueryBinder(self.catalog, dict(self.ctes)).relation(side, parent).schema)
        left = self.relation(tree.this, parent)
        right = self.relation(tree.expression, parent)
        if len(left.schema) != len(right.schema):
            raise BindError(
                f"the two sides of {tree.key.upper()} have {len(left.schema)} and {len(right.schema)} columns"
            ).at(position_of(tree.expression), None)
        if tree.args.get("by_name"):
            raise BindError("BY NAME is not part of CQL")
        left, right = unify(left, right, tree.key.upper(), self.catalog.zone)
        node: Node = SetOp(_SET_KINDS[type(tree)], not tree.args.get("distinct"), left, right)  # type: ignore[arg-type]
        node = self._select(parent).prioritised(node, tree)
        return self._select(parent).ordered(node, tree)

    # -- FROM -----------------------------------------------------------------------------------

    def source(self, tree: exp.Expr) -> Source:
        """An entry of FROM: a stream, relation, view or sub-query, windowed."""
        try:
            return self._source(tree)
        except PenstockError as error:
            raise error.at(position_of(tree), None) from None

    def _source(self, tree: exp.Expr) -> Source:
        window: StreamWindow | None = tree.args.get("stream_window")
        alias = identifier(tree.args["alias"].this) if tree.args.get("alias") else None
        if tree.args.get("alias") and tree.args["alias"].args.get("columns"):
            source = self._plain_source(tree, window, alias)
            return self._renamed(source, declared_names(tree.args["alias"].args["columns"]))
        return self._plain_source(tree, window, alias)

    def _renamed(self, source: Source, names: list[str]) -> Source:
        schema = source.node.schema
        if len(names) > len(schema):
            raise BindError(f"`{source.alias}` has {len(schema)} columns, {len(names)} names are given")
        full = tuple(names) + tuple(f.name for f in schema[len(names) :])
        exprs = tuple(Column(i, f.type, f.name) for i, f in enumerate(schema))
        return replace(source, node=Project(source.node, exprs, full))

    def _plain_source(self, tree: exp.Expr, window: StreamWindow | None, alias: str | None) -> Source:
        if isinstance(tree, exp.Table):
            return self._named(tree, window, alias)
        if isinstance(tree, exp.Subquery):
            if isinstance(tree.this, exp.Table):
                inner = self.source(tree.this)
                return replace(inner, alias=alias or inner.alias)
            return self._derived(tree.this, window, alias or f"query{len(self._aliases) + 1}", "sub-query")
        raise BindError(f"`{tree.sql()}` cannot stand in FROM")

    def _named(self, tree: exp.Table, window: StreamWindow | None, alias: str | None) -> Source:
        if tree.args.get("db") is not None:
            raise BindError(f"`{tree.sql()}`: names have one part", hint="there are no schemas or databases")
        name = identifier(tree.this)
        shown = alias or name
        self.reads.add(name)
        if name in self.ctes:
            hidden = QueryBinder(self.catalog, {k: v for k, v in self.ctes.items() if k != name})
            return self._inside(hidden, self.ctes[name], window, shown, "query")
        if (view := self.catalog.views.get(name)) is not None:
            return self._inside(QueryBinder(self.catalog.whole), view.tree.copy(), window, shown, "view")
        if (relation := self.catalog.relations.get(name)) is not None:
            if window is not None:
                raise BindError(
                    f"`{name}` is a relation and needs no window", hint="its rows are there until they are deleted"
                ).at(position_of(window), None)
            return Source(relation.scan, shown, "relation", relation.unread)
        try:
            stream = self.catalog.stream(name)
        except CatalogError:
            raise self.catalog.unknown(name).at(position_of(tree), None) from None
        self._aliases = {**self._aliases, shown: name}
        return Source(self._windowed(stream.scan, window, f"stream `{name}`"), shown, "stream", stream.unread)

    def _inside(
        self, binder: QueryBinder, query: exp.Expr, window: StreamWindow | None, alias: str, what: str
    ) -> Source:
        binder._stream_count = self._stream_count
        source = binder._derived(query, window, alias, what)
        self._absorb(binder)
        return source

    def _derived(self, query: exp.Expr, window: StreamWindow | None, alias: str, what: str) -> Source:
        emit, *_ = self._peel(query)
        if emit is None and window is None:
            return Source(self.relation(query, None), alias, what)
        stream = self._query_stream(query, alias)
        self._aliases = {**self._aliases, alias: stream.name}
        if stream.query.output == "changes":
            raise BindError(
                f"{what} `{alias}` is a relation whose rows come and go, a window needs a stream",
                hint="write ISTREAM in it, or leave the window out",
            ).at(position_of(window) if window is not None else None, None)
        return Source(self._windowed(stream, window, f"{what} `{alias}`"), alias, what)

    def _query_stream(self, tree: exp.Expr, name: str) -> QueryStream:
        inner = QueryBinder(self.catalog, self.ctes)
        query = inner.query(tree)
        self.reads |= inner.reads
        position = self.catalog.next_position + self._stream_count
        self._stream_count += 1
        return QueryStream(name if name not in self.catalog.streams else f"({name})", query, position)

    def _windowed(self, stream: Stream, window: StreamWindow | None, where: str) -> Window:
        if window is None:
            return Window(stream, Unbounded())
        constants = ExpressionBinder(self.catalog, Scope())
        return Window(stream, bind_window(window, stream.schema, stream.clock, where, constants))


def bind_query(tree: exp.Expr, catalog: Catalog) -> tuple[Query, frozenset[str]]:
    """The plan of a query, or of a plan object, and the names of all it reads."""
    if isinstance(tree, PlanObject):
        return plan_of_object(tree.name, catalog)
    binder = QueryBinder(catalog)
    query = binder.query(tree)
    return query, frozenset(binder.reads)
