"""One SELECT: FROM, WHERE, GROUP BY, HAVING, SELECT, DISTINCT, ORDER BY, LIMIT, in the order they work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock import functions
from penstock.catalog import Catalog
from penstock.cql.expressions import AGGREGATE, SUBQUERY, ExpressionBinder, as_priority, identifier
from penstock.cql.scope import OUTER, Scope
from penstock.cql.subqueries import SubQuery, as_marks, attach
from penstock.cql.text import format_statement, position_of
from penstock.model.errors import BindError, PenstockError
from penstock.model.names import find_name, unique_names
from penstock.model.types import BIGINT, TIMESTAMP, DataType, common_type
from penstock.plan.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    JoinKind,
    Node,
    Prioritise,
    Project,
    SemiJoin,
    SortKey,
    TopN,
    bounded_windows,
    streams,
)
from penstock.plan.order import cut
from penstock.plan.steps import below_steps
from penstock.plan.window import Generic
from penstock.scalar import expr as ex
from penstock.scalar.expr import Cast, Column, Expr, conjunction, conjuncts

if TYPE_CHECKING:
    from penstock.cql.queries import Source


@dataclass(frozen=True)
class Output:
    """A column of the SELECT list."""

    name: str
    expr: Expr
    tree: exp.Expr | None
    exact: bool = False
    """Whether case matters in its name: it is quoted, or a column that only case tells from another one."""


class SelectBinder:
    """Binds one SELECT; ``parent`` is the scope of the query around it, for sub-queries of expressions."""

    def __init__(
        self,
        catalog: Catalog,
        source: Callable[[exp.Expr], Source],
        subquery: Callable[[exp.Expr, Scope], SubQuery],
        parent: Scope | None,
    ) -> None:
        self.catalog = catalog
        self.source = source
        self.subquery = subquery
        self.scope = Scope(parent=parent)

    # -- the whole block ------------------------------------------------------------------------

    def relation(self, tree: exp.Select) -> Node:
        """The plan of the SELECT as a relation."""
        for clause, what in _NOT_CQL.items():
            if tree.args.get(clause):
                raise BindError(f"{what} is not part of CQL").at(position_of(tree), None)
        plan = self._from(tree)
        where = tree.args.get("where")
        if where is not None:
            plan, condition = self._condition(plan, where.this)
            self._refuse_outer([condition], where.this)
            plan = Filter(plan, condition)
        priority = tree.args.get("priority_by")
        if priority is not None:
            plan = Prioritise(plan, self._priority(priority.this))
        return self._select_list(plan, tree)

    def correlated(self, tree: exp.Select) -> SubQuery | None:
        """The SELECT as a sub-query that may refer outwards, if it is simple enough for that; else None."""
        clauses = ("group", "having", "distinct", "limit", "order", "offset", "priority_by")
        if any(tree.args.get(c) for c in clauses) or any(tree.args.get(c) for c in _NOT_CQL):
            return None
        if _has_aggregates(tree, self.catalog):
            return None
        plan = self._from(tree)
        residual: list[Expr] = []
        where = tree.args.get("where")
        if where is not None:
            plan, condition = self._condition(plan, where.this)
            local: list[Expr] = []
            for part in conjuncts(condition):
                (residual if _reads_outer(part) else local).append(part)
            if (kept := conjunction(local)) is not None:
                plan = Filter(plan, kept)
        binder = self._binder(None)
        outputs = tuple(o.expr for o in self._outputs(tree, binder))
        if binder.subqueries:
            raise BindError("a sub-query in the SELECT list of a sub-query").at(position_of(tree), None)
        return SubQuery(plan, outputs, conjunction(residual))

    @staticmethod
    def uncorrelated(node: Node) -> SubQuery:
        """A relation as a sub-query that looks at nothing outside."""
        below = below_steps(node, filters=False)
        always = isinstance(below, Aggregate) and not below.keys
        single = always or (isinstance(below, TopN) and below.limit is not None and below.limit <= 1)
        outputs = tuple(Column(i, f.type, f.name) for i, f in enumerate(node.schema))
        return SubQuery(node, outputs, single_row=single, always_row=always)

    # -- FROM and WHERE ---------------------------------------------------------------------------

    def _from(self, tree: exp.Select) -> Node:
        clause = tree.args.get("from_")
        if clause is None:
            raise BindError("a query needs FROM", hint="name a stream, relation or sub-query").at(
                position_of(tree), None
            )
        groups: list[tuple[exp.Expr, list[exp.Join]]] = [(clause.this, [])]
        for join in tree.args.get("joins") or []:
            if join.args.get("method") or join.side or join.kind or join.args.get("on") or join.args.get("using"):
                groups[-1][1].append(join)
            else:
                groups.append((join.this, []))
        plan: Node | None = None
        for first, joins in groups:
            # A comma binds less than JOIN: what stands between two commas is joined by itself.
            left, self.scope = self.scope, Scope(parent=self.scope.parent, before=self.scope)
            right = self._entry(first)
            for join in joins:
                right = self._join(right, join)
            self.scope = left.beside(self.scope)
            plan = right if plan is None else Join("inner", plan, right)
        assert plan is not None
        self.scope.window_bound = _bound_type(plan)
        return plan

    def _entry(self, tree: exp.Expr) -> Node:
        try:
            source = self.source(tree)
            self.scope.add(source.alias, source.what, source.node.schema, source.unread)
        except PenstockError as error:
            seen = [self.scope, *([self.scope.before] if self.scope.before else [])]
            unknown = error.unknown if isinstance(error, BindError) else None
            if unknown is not None and any(scope.find(*unknown) is not None for scope in seen):
                raise BindError(
                    "a sub-query in FROM does not see the other entries of FROM",
                    hint="put the condition behind it, into ON or WHERE",
                ).at(error.position, None) from None
            raise error.at(position_of(tree), None) from None
        return source.node

    def _join(self, left: Node, join: exp.Join) -> Node:
        side, word = join.side.lower(), join.kind
        kind: JoinKind = side if side in ("left", "right", "full") else "inner"  # type: ignore[assignment]
        kept = replace(self.scope, items=list(self.scope.items), shown=list(self.scope.shown))
        right = self._entry(join.this)
        on, using = join.args.get("on"), join.args.get("using")
        condition: Expr | None = None
        if join.args.get("method"):
            self._refuse_unread(kept, join)
            theirs = {name.lower() for name, _ in self.scope.shown[len(kept.shown) :]}
            common = [name.lower() for name, _ in kept.shown if name.lower() in theirs]
            if not common:
                raise BindError("NATURAL JOIN of two sides that have no column in common", hint="write CROSS JOIN").at(
                    position_of(join), None
                )
            condition = self._using(common, len(kept.shown), kind, join)
        elif on is not None:
            binder = self._binder("ON")
            binder.bind_subquery = None
            condition = binder.condition(on, "ON")
            self._refuse_outer([condition], on)
        elif using:
            condition = self._using([identifier(node) for node in using], len(kept.shown), kind, using[0])
        if word in ("SEMI", "ANTI"):
            self.scope = kept
            return SemiJoin("semi" if word == "SEMI" else "anti", left, right, (), condition)
        return Join(kind, left, right, (), condition)

    def _refuse_unread(self, left: Scope, join: exp.Join) -> None:
        """NATURAL JOIN must not leave out a column that both sides have because CQL has no type for it."""
        both = (left, Scope(self.scope.items[-1:], self.scope.shown[len(left.shown) :]))
        names = [{*(n.lower() for n, _ in side.shown), *(n.lower() for n, _ in side.unread())} for side in both]
        for side, other in zip(both, reversed(names), strict=True):
            for name, unread in side.unread():
                if name.lower() in other:
                    raise BindError(
                        f"NATURAL JOIN cannot compare `{name}`, which both sides have: CQL has no type for {unread}",
                        hint=f"write USING and the columns that you mean; {unread.hint}",
                    ).at(position_of(join), None)

    def _using(self, names: list[str], place: int, kind: str, tree: exp.Expr) -> Expr:
        try:
            pairs = self.scope.using(names, place, kind)
            condition = conjunction([functions.resolve("=", list(pair), self.catalog.zone) for pair in pairs])
        except PenstockError as error:
            raise error.at(position_of(tree), None) from None
        assert condition is not None
        return condition

    def _binder(self, aggregates_in: str | None) -> ExpressionBinder:
        return ExpressionBinder(self.catalog, self.scope, self.subquery, aggregates_in)

    def _condition(self, plan: Node, tree: exp.Expr) -> tuple[Node, Expr]:
        binder = self._binder("WHERE")
        condition = as_marks(binder.condition(tree, "WHERE"), binder.subqueries, [])
        plan, finish = attach(plan, binder.subqueries, lambda e: e)
        return plan, finish(condition)

    def _priority(self, tree: exp.Expr) -> Expr:
        binder = self._binder("PRIORITY BY")
        binder.bind_subquery = None
        by = as_priority(binder.bind(tree), tree)
        self._refuse_outer([by], tree)
        return by

    def prioritised(self, node: Node, tree: exp.Expr) -> Node:
        """The rows of a whole query with the priorities that it gives them."""
        clause = tree.args.get("priority_by")
        if clause is None:
            return node
        self.scope.add("answer", "query", node.schema)
        return Prioritise(node, self._priority(clause.this))

    def _refuse_outer(self, exprs: Sequence[Expr], tree: exp.Expr) -> None:
        if any(_reads_outer(e) for e in exprs):
            raise refers_outwards().at(position_of(tree), None)

    # -- SELECT list, GROUP BY and what follows ------------------------------------------------------

    def _select_list(self, plan: Node, tree: exp.Select) -> Node:
        binder = self._binder(None)
        outputs = self._outputs(tree, binder)
        keys = self._group_keys(tree, outputs)
        having_tree = tree.args.get("having")
        having = binder.condition(having_tree.this, "HAVING") if having_tree is not None else None
        order = tree.args.get("order")
        sort = [(o, self._sort_expr(o, outputs, binder)) for o in (order.expressions if order else [])]
        if having is not None:
            having = as_marks(having, binder.subqueries, [*(o.expr for o in outputs), *(e for _, e in sort)])
        rewrite: Callable[[Expr], Expr] = lambda e: e  # noqa: E731
        self._refuse_outer([*(o.expr for o in outputs), *([having] if having is not None else [])], tree)
        if keys or binder.aggregates or having is not None:
            names = tuple(_key_name(k, i) for i, k in enumerate(keys))
            names += tuple(a.function for a in binder.aggregates)
            plan = Aggregate(plan, tuple(keys), tuple(binder.aggregates), tuple(unique_names(names)))
            rewrite = _over_groups(keys, binder)
            outputs = [replace(o, expr=self._rewritten(rewrite, o.expr, o.tree or tree)) for o in outputs]
            sort = [(o, self._rewritten(rewrite, e, o)) for o, e in sort]
            if having is not None and having_tree is not None:
                having = self._rewritten(rewrite, having, having_tree.this)
        plan, finish = attach(plan, binder.subqueries, rewrite)
        if having is not None:
            plan = Filter(plan, finish(having))
        exprs = [finish(o.expr) for o in outputs]
        sort_exprs = [finish(e) for _, e in sort]
        hidden = list(dict.fromkeys(e for e in sort_exprs if e not in exprs))
        distinct = tree.args.get("distinct") is not None
        if distinct and tree.args["distinct"].args.get("on"):
            raise BindError("DISTINCT ON is not part of CQL").at(position_of(tree), None)
        if distinct and hidden:
            raise BindError("ORDER BY of SELECT DISTINCT must use its columns").at(position_of(order or tree), None)
        names_out = unique_names([o.name for o in outputs], exact=[o.exact for o in outputs])
        all_names = [*names_out, *(f"sort{i + 1}" for i in range(len(hidden)))]
        plan = Project(plan, (*exprs, *hidden), tuple(all_names))
        if distinct:
            plan = Distinct(plan)
        every = [*exprs, *hidden]
        places = [Column(every.index(e), e.type, all_names[every.index(e)]) for e in sort_exprs]
        plan = self._top(plan, tree, [o for o, _ in sort], places)
        if hidden:
            kept = tuple(Column(i, e.type, names_out[i]) for i, e in enumerate(exprs))
            plan = Project(plan, kept, tuple(names_out))
        return plan

    def _rewritten(self, rewrite: Callable[[Expr], Expr], expr: Expr, tree: exp.Expr) -> Expr:
        try:
            return rewrite(expr)
        except PenstockError as error:
            raise error.at(position_of(tree), None) from None

    def _outputs(self, tree: exp.Select, binder: ExpressionBinder) -> list[Output]:
        outputs: list[Output] = []
        for item in tree.expressions:
            star = item if isinstance(item, exp.Star) else None
            qualifier: str | None = None
            if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
                star, qualifier = item.this, identifier(item.args["table"])
            if star is not None:
                # EXISTS asks for rows, whatever their columns.
                whole = not isinstance(tree.parent, exp.Exists)
                try:
                    columns = self.scope.star(qualifier, whole=whole)
                    outputs += [Output(n, e, None, self.scope.case_matters(n)) for n, e in columns]
                except PenstockError as error:
                    raise error.at(position_of(item), None) from None
                continue
            bound = binder.bind(item)
            if bound.type.kind.name == "NULL":
                raise BindError("a column of nothing but NULL needs a type", hint="CAST(NULL AS …)").at(
                    position_of(item), None
                )
            outputs.append(self._output(item, bound))
        if not outputs:
            raise BindError("SELECT needs at least one column").at(position_of(tree), None)
        return outputs

    def _output(self, item: exp.Expr, bound: Expr) -> Output:
        """A column keeps the name that was declared, an alias is as it is written."""
        if isinstance(item, exp.Alias):
            alias = item.args["alias"]
            return Output(alias.name, bound, item, bool(alias.args.get("quoted")))
        if not isinstance(item, exp.Column):
            return Output(format_statement(item), bound, item)
        # Merged by USING in a FULL JOIN, it is called as in the first of both.
        column = bound.args[0] if isinstance(bound, ex.Call) else bound
        name = column.name if isinstance(column, Column) and column.name else identifier(item.this)
        return Output(name, bound, item, bool(item.this.args.get("quoted")) or self.scope.case_matters(name))

    def _group_keys(self, tree: exp.Select, outputs: list[Output]) -> list[Expr]:
        group = tree.args.get("group")
        if group is None:
            return []
        if any(group.args.get(a) for a in ("rollup", "cube", "grouping_sets", "all")):
            raise BindError("ROLLUP, CUBE and GROUPING SETS are not part of CQL").at(position_of(group), None)
        keys: list[Expr] = []
        for node in group.expressions:
            key = self._named_output(node, outputs, "GROUP BY")
            if key is None:
                binder = self._binder("GROUP BY")
                binder.bind_subquery = None
                key = binder.bind(node)
            elif any(isinstance(e, Column) and e.index >= AGGREGATE for e in ex.walk(key)):
                raise BindError("GROUP BY names a column that is an aggregate").at(position_of(node), None)
            if not isinstance(key, ex.WindowBound) and key not in keys:
                keys.append(key)
            elif isinstance(key, ex.WindowBound):
                # Every window is answered on its own, so its bounds are constants within a group; the
                # key stays so that an empty window gives no row, as GROUP BY promises.
                keys.append(key)
        return keys

    def _named_output(self, node: exp.Expr, outputs: list[Output], clause: str) -> Expr | None:
        """The SELECT column that a number or an alias stands for; names of FROM go first in GROUP BY."""
        if isinstance(node, exp.Literal) and not node.is_string:
            if not (node.name.isdigit() and len(node.name) < 10 and 1 <= int(node.name) <= len(outputs)):
                raise BindError(f"{clause} {node.name[:40]}: there are columns 1 to {len(outputs)}").at(
                    position_of(node), None
                )
            return outputs[int(node.name) - 1].expr
        if not isinstance(node, exp.Column) or node.args.get("table") is not None:
            return None
        name = identifier(node.this)
        if clause == "GROUP BY" and any(item.find(name) for item in self.scope.items):
            return None
        named = [o for o in outputs if o.tree is not None]
        place = find_name(name, (o.name for o in named))
        return None if place is None else named[place].expr

    def _sort_expr(self, ordered: exp.Expr, outputs: list[Output], binder: ExpressionBinder) -> Expr:
        node = ordered.this
        return self._named_output(node, outputs, "ORDER BY") or binder.bind(node)

    def ordered(self, plan: Node, tree: exp.Expr) -> Node:
        """ORDER BY and LIMIT behind a set operation or parentheses, by names or numbers of the columns.

        LIMIT and OFFSET alone go by the order of the query in the parentheses.
        """
        order = tree.args.get("order")
        if order is None and isinstance(tree, exp.Subquery):
            return cut(plan, *_counts(tree))
        outputs = [Output(f.name, Column(i, f.type, f.name), tree) for i, f in enumerate(plan.schema)]
        places: list[Column] = []
        for item in order.expressions if order else []:
            found = self._named_output(item.this, outputs, "ORDER BY")
            if not isinstance(found, Column):
                raise BindError("ORDER BY behind a set operation or parentheses takes names or numbers of columns").at(
                    position_of(item), None
                )
            places.append(found)
        return self._top(plan, tree, order.expressions if order else [], places)

    def _top(self, plan: Node, tree: exp.Expr, order: list[exp.Expr], places: Sequence[Column]) -> Node:
        limit, offset = _counts(tree)
        if not order and limit is None and offset is None:
            return plan
        keys = tuple(
            SortKey(place, bool(o.args.get("desc")), bool(o.args.get("nulls_first")))
            for o, place in zip(order, places, strict=True)
        )
        return TopN(plan, keys, limit, offset or 0)


def refers_outwards() -> BindError:
    """A sub-query uses a column of the query around it where it cannot."""
    return BindError(
        "a sub-query can refer to the query around it only in the WHERE of a plain SELECT, without aggregates, "
        "GROUP BY, DISTINCT, ORDER BY and LIMIT",
        hint="join with a sub-query in FROM, as in JOIN (SELECT k, max(x) AS x FROM r GROUP BY k) AS m USING (k)",
    )


def _over_groups(keys: list[Expr], binder: ExpressionBinder) -> Callable[[Expr], Expr]:
    """Expressions over the rows of FROM, turned into expressions over the groups."""

    def rewrite(expr: Expr) -> Expr:
        if expr in keys:
            return Column(keys.index(expr), expr.type, _key_name(expr, keys.index(expr)))
        if isinstance(expr, Column):
            if AGGREGATE <= expr.index < SUBQUERY:
                i = expr.index - AGGREGATE
                return Column(len(keys) + i, expr.type, binder.aggregates[i].function)
            if expr.index >= SUBQUERY or OUTER <= expr.index < AGGREGATE:
                return expr
            raise BindError(
                f"column `{expr.name}` is neither in GROUP BY nor inside an aggregate",
                hint=f"add it to GROUP BY, or use for example last({expr.name})",
            )
        args = ex.children(expr)
        return ex.with_children(expr, tuple(rewrite(a) for a in args)) if args else expr

    return rewrite


def unify(left: Node, right: Node, operation: str, zone: str) -> tuple[Node, Node]:
    """Both sides of a set operation with the same types, cast where they differ."""
    types: list[DataType] = []
    for i, (a, b) in enumerate(zip(left.schema, right.schema, strict=True)):
        common = common_type(a.type, b.type)
        if common is None:
            raise BindError(f"column {i + 1} of {operation} is {a.type} on one side and {b.type} on the other")
        types.append(common)
    return _cast_all(left, types, zone), _cast_all(right, types, zone)


def _cast_all(node: Node, types: list[DataType], zone: str) -> Node:
    if [f.type for f in node.schema] == types:
        return node
    exprs: list[Expr] = []
    for i, (field, wanted) in enumerate(zip(node.schema, types, strict=True)):
        column = Column(i, field.type, field.name)
        exprs.append(column if field.type == wanted else functions.in_zone(Cast(column, wanted), zone))
    return Project(node, tuple(exprs), tuple(f.name for f in node.schema))


def _reads_outer(expr: Expr) -> bool:
    return any(isinstance(e, Column) and OUTER <= e.index < AGGREGATE for e in ex.walk(expr))


def _has_aggregates(tree: exp.Select, catalog: Catalog) -> bool:
    from penstock.cql.ast import function_call

    for item in tree.expressions:
        for node in item.walk(prune=lambda n: isinstance(n, exp.Query)):
            call = function_call(node)
            if call is not None and functions.is_aggregate(call.name) and call.name not in catalog.functions:
                return True
    return False


def _bound_type(plan: Node) -> DataType | None:
    window = next(iter(bounded_windows(plan)), None)
    if window is None:
        return None
    if isinstance(window.spec, Generic) and window.spec.unit == "tuples":
        return BIGINT
    return BIGINT if streams(window)[0].clock == "ticks" else TIMESTAMP


def _key_name(key: Expr, index: int) -> str:
    match key:
        case Column(_, _, name) if name:
            return name
        case ex.WindowBound(which, _):
            return f"window_{which}"
    return f"key{index + 1}"


def _counts(tree: exp.Expr) -> tuple[int | None, int | None]:
    """LIMIT and OFFSET behind a query."""
    return _count(tree.args.get("limit"), "LIMIT"), _count(tree.args.get("offset"), "OFFSET")


def _count(clause: exp.Expr | None, word: str) -> int | None:
    if clause is None:
        return None
    node = clause.expression if isinstance(clause, exp.Limit | exp.Offset) else clause
    if not (isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()):
        raise BindError(f"{word} needs a whole number").at(position_of(clause), None)
    if len(node.name) > 18:
        raise BindError(f"{word} is at most {10**18 - 1}", hint="leave it out").at(position_of(clause), None)
    return int(node.name)


_NOT_CQL = {
    "qualify": "QUALIFY", "windows": "WINDOW", "laterals": "LATERAL", "pivots": "PIVOT", "connect": "CONNECT BY",
    "into": "SELECT … INTO", "distribute": "DISTRIBUTE BY", "sort": "SORT BY", "cluster": "CLUSTER BY",
    "sample": "TABLESAMPLE",
}  # fmt: skip
