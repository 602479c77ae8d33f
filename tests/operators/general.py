"""Drives the general operators over a plan, with the contents of its leaves given instant by instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from penstock.model.delta import BEGINNING, MAX_TS, NEVER, Delta, Instant, Step, arrival_sub
from penstock.model.schema import Schema
from penstock.model.values import to_arrow
from penstock.operators.accumulators import GOES_BY_MOMENT
from penstock.operators.aggregate import GeneralAggregate
from penstock.operators.base import Operator, StateSize
from penstock.operators.distinct import GeneralDistinct, GeneralSetOp
from penstock.operators.evaluation import Evaluation, reader
from penstock.operators.gate import MasterGate
from penstock.operators.join import GeneralJoin
from penstock.operators.priority import SetPriority
from penstock.operators.rows import Output, Row, by_instant, rows_of
from penstock.operators.semijoin import GeneralSemiJoin
from penstock.operators.topn import GeneralTopN
from penstock.plan.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Node,
    Prioritise,
    Project,
    RelationScan,
    SemiJoin,
    SetOp,
    TopN,
    Window,
    inputs,
)
from penstock.reference.windows import Row as ReferenceRow
from penstock.reference.windows import value_key
from penstock.scalar import Context

Contents = Mapping[int, Sequence[ReferenceRow]]
"""What each leaf, by ``id(node)``, holds."""


class Stateless:
    """Filter and project, row by row."""

    def __init__(self, node: Filter | Project, errors: Context) -> None:
        self.node = node
        self.evaluation = Evaluation({}, errors)
        exprs = (node.predicate,) if isinstance(node, Filter) else node.exprs
        self.readers = [reader(e, self.evaluation.leaving) for e in exprs]

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        output = Output(self.node.schema)
        for instant, (changes,) in by_instant(inputs):
            output.add(instant, self.rows(changes.leaving), self.rows(changes.entering))
        return output.delta()

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        if isinstance(self.node, Filter):
            return [r for r in rows if self.readers[0](r.values) is True]
        return [r._replace(values=tuple(read(r.values) for read in self.readers)) for r in rows]

    def size(self) -> StateSize:
        return StateSize(0, 0)


def operator(node: Node, errors: Context, *, moments: bool = False) -> Operator:
    """The general operator of a node."""
    match node:
        case Filter() | Project():
            return Stateless(node, errors)
        case Join():
            return GeneralJoin(node, {}, errors)
        case SemiJoin():
            return GeneralSemiJoin(node, {}, errors)
        case Aggregate():
            return GeneralAggregate(node, {}, errors, moments=moments)
        case Prioritise():
            return SetPriority(node, {}, errors)
        case Distinct():
            return GeneralDistinct(node, {}, errors, moments=moments)
        case SetOp():
            return GeneralSetOp(node, {}, errors, moments=moments)
        case TopN():
            return GeneralTopN(node, {}, errors, moments=moments)
    raise TypeError(node)


class Tree:
    """A plan's operators. ``moments``: somebody above the plan goes by them."""

    def __init__(self, node: Node, errors: Context, *, gated: bool = False, moments: bool = False) -> None:
        self.node = node
        self.gate: MasterGate | None = None
        self.inputs: list[Tree] = []
        if isinstance(node, Window | RelationScan):
            self.gate = MasterGate(node.schema) if gated else None
            return
        self.operator = operator(node, errors, moments=moments)
        if isinstance(node, Aggregate):
            moments = moments or any(c.function in GOES_BY_MOMENT for c in node.aggregates)
        self.inputs = [Tree(below, errors, gated=gated, moments=moments) for below in inputs(node)]

    def process(self, leaves: Mapping[int, Delta], step: Step) -> Delta:
        if not self.inputs:
            delta = leaves[id(self.node)]
            return delta if self.gate is None else self.gate.process([delta], step)
        return check_laws(self.operator.process([i.process(leaves, step) for i in self.inputs], step))

    def size(self) -> StateSize:
        own = StateSize(0, 0) if not self.inputs else self.operator.size()
        own = own if self.gate is None else self.gate.size()
        return sum((i.size() for i in self.inputs), own)


def check_laws(delta: Delta) -> Delta:
    """Order: by instant, rows that leave first."""
    order = list(zip(delta.ts.tolist(), delta.sub.tolist(), delta.sign.tolist(), strict=True))
    assert order == sorted(order)
    return delta


@dataclass
class History:
    """The contents of all leaves at each instant, the first being the beginning."""

    leaves: dict[int, Schema]
    instants: list[Instant] = field(default_factory=list)
    contents: list[Contents] = field(default_factory=list)

    def deltas(self, start: int, stop: int) -> dict[int, Delta]:
        """The changes of each leaf at these instants."""
        result = {}
        for leaf, schema in self.leaves.items():
            rows: list[tuple[Instant, int, ReferenceRow]] = []
            for i in range(start, stop):
                before = {r.id: r for r in self.contents[i - 1][leaf]} if i else {}
                now = {r.id: r for r in self.contents[i][leaf]}
                rows += [(self.instants[i], -1, r) for key, r in before.items() if key not in now]
                rows += [(self.instants[i], 1, r) for key, r in now.items() if key not in before]
            result[leaf] = delta_of(schema, rows)
        return result


def moment_of(row: ReferenceRow) -> Instant:
    ts, position, arrival = row.moment
    return ts, arrival_sub(position, arrival)


def delta_of(schema: Schema, rows: Sequence[tuple[Instant, int, ReferenceRow]]) -> Delta:
    columns = [to_arrow([r.values[i] for _, _, r in rows], f.type) for i, f in enumerate(schema)]
    moments = [moment_of(r) for _, _, r in rows]
    return Delta(
        schema,
        tuple(columns),
        np.array([t for (t, _), _, _ in rows], np.int64),
        np.array([s for (_, s), _, _ in rows], np.int64),
        np.array([sign for _, sign, _ in rows], np.int8),
        np.array([m[0] for m in moments], np.int64),
        np.array([m[1] for m in moments], np.int64),
        np.array([r.priority for _, _, r in rows], np.int64),
    )


def pieces(count: int, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """The ranges that cutting ``count`` things at these places gives; some may be empty.

    The first, which is the beginning, is always in the first piece.
    """
    places = [0, *sorted(max(1, min(c, count)) for c in cuts), count]
    return list(pairwise(places))


def frontier(history: History, stop: int) -> Instant:
    """Everything before it, and nothing else, is in the first ``stop`` instants."""
    return history.instants[stop] if stop < len(history.instants) else NEVER


Line = tuple[Instant, int, Hashable]


def lines(delta: Delta) -> list[Line]:
    at = zip(delta.ts.tolist(), delta.sub.tolist(), strict=True)
    return [(i, s, value_key(r.values)) for i, s, r in zip(at, delta.sign.tolist(), rows_of(delta), strict=True)]


def run(node: Node, history: History, cuts: Sequence[int], *, moments: bool = False) -> tuple[list[Delta], Tree]:
    """All output of a plan, processed in these pieces."""
    tree = Tree(node, Context(), moments=moments)
    result = []
    for start, stop in pieces(len(history.instants), cuts):
        result.append(tree.process(history.deltas(start, stop), Step(frontier(history, stop))))
    return result, tree


def leaves_as_they_entered(deltas: Sequence[Delta]) -> Callable[[Instant], Counter[Hashable]]:
    """Each row that leaves was there, with the same moment; gives what is there after an instant."""
    there: Counter[Hashable] = Counter()
    after: dict[Instant, Counter[Hashable]] = {BEGINNING: Counter()}
    for delta in deltas:
        at = zip(delta.ts.tolist(), delta.sub.tolist(), strict=True)
        for instant, sign, row in zip(at, delta.sign.tolist(), rows_of(delta), strict=True):
            key = (value_key(row.values), row.moment)
            there[key] += sign
            assert there[key] >= 0, (instant, row)
            assert row.end == MAX_TS
            after[instant] = +there

    def at_instant(instant: Instant) -> Counter[Hashable]:
        return after[max(i for i in after if i <= instant)]

    return at_instant
