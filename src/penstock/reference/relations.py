"""Relation to relation: what a plan describes at one instant, by recursion over its nodes.

Every row carries its identity, which decides whether it is new at the next instant; each operator below says
how its rows' identities come from those of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial

from penstock.model.schema import HIGHEST_PRIORITY
from penstock.plan.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Node,
    PairPriority,
    Prioritise,
    Project,
    Query,
    QueryStream,
    RelationScan,
    SemiJoin,
    SetOp,
    StreamScan,
    TopN,
    Window,
)
from penstock.reference.aggregates import compute
from penstock.reference.windows import BEGINNING, Row, value_key
from penstock.scalar import Context, evaluate, order_key
from penstock.scalar.expr import Expr


def value_order(row: Row) -> tuple[object, ...]:
    """Sorts rows by their values, equal ones by their moment."""
    return (*(order_key(v) for v in row.values), row.moment)


class Snapshot:
    """The relation that a node describes, given what its leaves hold now."""

    def __init__(self, leaf: Callable[[Node], list[Row]], context: Context, counted: set[Hashable]) -> None:
        self.leaf = leaf
        self.context = context
        self.counted = counted

    def rows(self, node: Node) -> list[Row]:
        match node:
            case StreamScan() | QueryStream() | RelationScan() | Window():
                return self.leaf(node)
            case Filter():
                return [r for r in self.rows(node.input) if self.value(node.predicate, r) is True]
            case Project():
                return [self._project(node, r) for r in self.rows(node.input)]
            case Join():
                return self._join(node)
            case SemiJoin():
                return self._semi_join(node)
            case Aggregate():
                return self._aggregate(node)
            case Distinct():
                return self._distinct(self.rows(node.input))
            case Prioritise():
                return [r._replace(priority=_priority(self.value(node.by, r))) for r in self.rows(node.input)]
            case SetOp():
                return self._set_operation(node)
            case TopN():
                return self._top(node)
            case Query():
                return self.rows(node.input)

    def value(self, expr: Expr, row: Row) -> object:
        return self._counting_once(expr, row.id, lambda: evaluate(expr, row.values, self.context))

    def _counting_once(self, what: object, whose: Hashable, work: Callable[[], object]) -> object:
        """Snapshots compute the same thing again and again; a failure counts the first time only."""
        failures = self.context.failures
        result = work()
        if self.context.failures > failures:
            if (id(what), whose) in self.counted:
                self.context.failures = failures
            self.counted.add((id(what), whose))
        return result

    def _project(self, node: Project, row: Row) -> Row:
        return row._replace(values=tuple(self.value(e, row) for e in node.exprs))

    def _key(self, exprs: Iterable[Expr], row: Row) -> Hashable:
        """Equal where the keys are equal by SQL's ``=``; None where one is NULL, which equals nothing."""
        values = [self.value(e, row) for e in exprs]
        return None if any(v is None for v in values) else value_key(values)

    def _matches(
        self, node: Join | SemiJoin, right: list[Row]
    ) -> Iterator[tuple[Row, list[tuple[Row, Row]]]]:
        """Each left row, with (right row, pair) wherever the keys are equal and the residual is TRUE."""
        by_key: dict[Hashable, list[Row]] = {}
        for row in right:
            by_key.setdefault(self._key((r for _, r in node.keys), row), []).append(row)
        by_key.pop(None, None)
        for row in self.rows(node.left):
            found = by_key.get(self._key((left for left, _ in node.keys), row), [])
            pairs = [(r, _pair(row, r, node.priority if isinstance(node, Join) else "max")) for r in found]
            if node.residual is not None:
                pairs = [(r, pair) for r, pair in pairs if self.value(node.residual, pair) is True]
            yield row, pairs

    def _join(self, node: Join) -> list[Row]:
        left_nulls = (None,) * len(node.left.schema)
        right_nulls = (None,) * len(node.right.schema)
        right = self.rows(node.right)
        result: list[Row] = []
        matched: set[Hashable] = set()
        for row, pairs in self._matches(node, right):
            result += [pair for _, pair in pairs]
            matched |= {r.id for r, _ in pairs}
            if not pairs and node.kind in ("left", "full"):
                result.append(row._replace(id=(row.id, None), values=row.values + right_nulls))
        if node.kind in ("right", "full"):
            lonely = [r for r in right if r.id not in matched]
            result += [r._replace(id=(None, r.id), values=left_nulls + r.values) for r in lonely]
        return result

    def _semi_join(self, node: SemiJoin) -> list[Row]:
        result = []
        for row, pairs in self._matches(node, self.rows(node.right)):
            if node.compare is None:
                verdicts: list[object] = [True for _ in pairs]
            else:
                verdicts = [self.value(node.compare, pair) for _, pair in pairs]
            mark = True if True in verdicts else None if None in verdicts else False
            if node.kind == "mark":
                result.append(row._replace(id=(row.id, mark), values=(*row.values, mark)))
            elif (node.kind == "semi" and mark is True) or (node.kind == "anti" and mark is False):
                result.append(row)
        return result

    def _aggregate(self, node: Aggregate) -> list[Row]:
        groups: dict[Hashable, tuple[tuple[object, ...], list[Row]]] = {}
        if not node.keys:
            groups[()] = ((), [])
        for row in self.rows(node.input):
            keys = tuple(self.value(k, row) for k in node.keys)
            groups.setdefault(value_key(keys), (keys, []))[1].append(row)
        result = []
        for keys, members in groups.values():
            values = list(keys)
            for call in node.aggregates:
                chosen = [m for m in members if call.where is None or self.value(call.where, m) is True]
                args = [(m.moment, tuple(self.value(a, m) for a in call.args)) for m in chosen]
                whose = tuple(m.id for m in chosen)
                values.append(self._counting_once(call, whose, partial(compute, call, args, self.context)))
            result.append(_made_of(members, ("group", value_key(values)), tuple(values)))
        return result

    def _distinct(self, rows: list[Row]) -> list[Row]:
        return [
            _made_of(copies, ("distinct", key), copies[0].values) for key, copies in _copies(rows).items()
        ]

    def _set_operation(self, node: SetOp) -> list[Row]:
        left, right = self.rows(node.left), self.rows(node.right)
        if node.kind == "union":
            both = [r._replace(id=(0, r.id)) for r in left] + [r._replace(id=(1, r.id)) for r in right]
            return both if node.all else self._distinct(both)
        on_right = _copies(right)
        result = []
        for key, copies in _copies(left).items():
            others = on_right.get(key, [])
            if node.kind == "intersect":
                if node.all:
                    made = [list(pair) for pair in zip(copies, others, strict=False)]
                else:
                    made = [copies + others] if others else []
            elif node.all:
                made = [[copy] for copy in copies[: max(0, len(copies) - len(others))]]
            else:
                made = [] if others else [copies]
            result += [_made_of(rows, (key, k), copies[0].values) for k, rows in enumerate(made)]
        return result

    def _top(self, node: TopN) -> list[Row]:
        rows = sorted(self.rows(node.input), key=value_order)
        for key in reversed(node.keys):
            keyed = [(self.value(key.expr, r), r) for r in rows]
            nulls = [r for v, r in keyed if v is None]
            known = [(order_key(v), r) for v, r in keyed if v is not None]
            # Sorting is stable in both directions: ties stay as the later keys and the values ordered them.
            known.sort(key=lambda pair: pair[0], reverse=key.descending)
            ordered = [r for _, r in known]
            rows = nulls + ordered if key.nulls_first else ordered + nulls
        if node.limit is None and node.offset == 0:
            return rows
        end = None if node.limit is None else node.offset + node.limit
        copies = _copies(rows[node.offset : end])
        number = {r.id: k for same in copies.values() for k, r in enumerate(same)}
        return [r._replace(id=(value_key(r.values), number[r.id])) for r in rows[node.offset : end]]


def _priority(value: object) -> int:
    if not isinstance(value, int | float | Decimal) or value != value or value <= 0:
        return 0
    return int(min(value, HIGHEST_PRIORITY))


def _pair(left: Row, right: Row, how: str | PairPriority) -> Row:
    both = left.priority, right.priority
    if isinstance(how, PairPriority):
        priority = _priority(evaluate(how.by, both, Context()))
    else:
        priority = sum(both) if how == "sum" else min(both) if how == "min" else max(both)
    return Row((left.id, right.id), left.values + right.values, max(left.moment, right.moment), priority)


def _made_of(rows: Sequence[Row], identity: Hashable, values: tuple[object, ...]) -> Row:
    """A row made of others: its moment is the last of theirs, its priority the highest."""
    moment = max((r.moment for r in rows), default=(BEGINNING, -1, -1))
    return Row(identity, values, moment, max((r.priority for r in rows), default=0))


def _copies(rows: list[Row]) -> dict[Hashable, list[Row]]:
    """Rows by value, the copies of each value in the order of their moments."""
    found: dict[Hashable, list[Row]] = {}
    for row in sorted(rows, key=lambda r: r.moment):
        found.setdefault(value_key(row.values), []).append(row)
    return found
