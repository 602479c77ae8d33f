"""A simple cost model: good enough to tell plans of one query apart, not to predict the clock.

Of every node it estimates the changes it emits in a second and the rows it holds at a time; a plan's cost
adds up the rows kept as state and the steps taken per second. Seconds are those of the streams' own time.

What it knows of streams and relations was measured (``Measured``): rates, sizes, and samples of rows. A sample goes up
the plan as the rows would: filters and joins are tried out on it, so it says which share of the rows passes, how many
pairs match and how many values a key has. Where nothing was measured there are defaults; ``Estimate.figure`` says so.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add

from penstock.model.types import TICKS_PER_SECOND
from penstock.plan.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Node,
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
    bounded_window,
    bounded_windows,
)
from penstock.plan.nodes import walk as nodes_of
from penstock.plan.reuse import reuses
from penstock.plan.steps import below_steps
from penstock.plan.window import (
    Generic,
    Now,
    PartitionRows,
    Range,
    Rows,
    Session,
    Unbounded,
    WindowSpec,
)
from penstock.scalar import Context, evaluate, hashable
from penstock.scalar.expr import Call, Column, Expr, Literal, WindowBound, conjuncts, is_pure, walk

DEFAULT_RATE = 1_000.0
RELATION_ROWS = 1_000.0
HORIZON_SECONDS = 3_600.0
"""How long a query is taken to run: what UNBOUNDED and landmark windows collect."""
KEY_VALUES = 100.0
"""Distinct values of a key: of a join, a group or a partition."""
ENOUGH = 16
"""Rows of a sample from which on it says something."""
SAMPLE = 512
"""The most rows of a sample."""
_SELECTIVITY = {
    "=": 0.1, "is_not_distinct": 0.1, "<>": 0.9, "<": 0.33, "<=": 0.33, ">": 0.33, ">=": 0.33,
    "is_null": 0.05, "like": 0.25,
}  # fmt: skip

Row = tuple[object, ...]


@dataclass(frozen=True)
class Measured:
    """What has been measured of a stream or a relation. ``rate``: rows per second of the stream's time; ``rows``: of
    the relation; ``sample``: gives some of the rows."""

    rate: float | None = None
    rows: float | None = None
    sample: Callable[[], Sequence[Row]] | None = None


Figures = Mapping[str, Measured]
"""By name of stream or relation; those are missing of which nothing was measured."""


@dataclass(frozen=True)
class Cost:
    """``rate``: rows or changes emitted per second; ``state_rows``: rows kept; ``work``: steps per second."""

    rate: float
    state_rows: float
    work: float

    @property
    def total(self) -> float:
        """One number to compare plans by; a row kept costs far less than a step."""
        return self.work + 0.01 * self.state_rows


@dataclass(frozen=True)
class Figure:
    """A number that an estimate is made from, in words, and whether it was measured."""

    text: str
    measured: bool


@dataclass(frozen=True)
class Estimate:
    """Of one node, with everything below it: ``rows`` is the size of its relation. ``sample``: rows as they come out of
    it, if that is known. ``anew``: the share of them that comes for each bounded window; 1: all. ``figure``: what is
    assumed here."""

    rate: float
    rows: float
    state_rows: float
    work: float
    sample: tuple[Row, ...] | None = None
    anew: float = 0.0
    figure: Figure | None = None


def estimate(query: Query, figures: Figures | None = None) -> Cost:
    """The cost of a query."""
    return Costs(figures).of(query)


class Costs:
    """Estimates of plans of one query. Bounded: knows the nodes that it was asked for, as long as it is used."""

    def __init__(self, figures: Figures | None = None) -> None:
        self._figures = figures or {}
        self._known: dict[Node, Estimate] = {}

    def of(self, query: Query) -> Cost:
        found = self.node(query)
        return Cost(found.rate, found.state_rows, found.work)

    def node(self, node: Node) -> Estimate:
        """What flows out of a node, and what it and all below cost."""
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = self._estimate(node)
        return found

    def _estimate(self, node: Node) -> Estimate:
        figure: Figure | None
        match node:
            case StreamScan(stream, _, _, _):
                rate = self._measured(stream).rate
                figure = _figure("{} rows/s", DEFAULT_RATE if rate is None else rate, rate is not None)
                rate = DEFAULT_RATE if rate is None else rate
                return Estimate(rate, rate * HORIZON_SECONDS, 0.0, rate, self._sample(stream), figure=figure)
            case RelationScan(relation, _, _):
                rows = self._measured(relation).rows
                figure = _figure("{} rows", RELATION_ROWS if rows is None else rows, rows is not None)
                rows = RELATION_ROWS if rows is None else rows
                return Estimate(0.1, rows, 0.0, 0.1, self._sample(relation), figure=figure)
            case QueryStream():
                return self.node(node.query)
            case Query():
                return self._query(node)
            case Window():
                return self._window(node)
            case Filter(below, predicate):
                e = self.node(below)
                share, sample, figure = _filtered(predicate, e.sample)
                steps = e.rate * (1 + 0.01 * max(1, len(conjuncts(predicate))))
                return Estimate(e.rate * share, e.rows * share, e.state_rows, e.work + steps, sample, e.anew, figure)
            case Project(below, exprs, _):
                e = self.node(below)
                # Leaving columns out is next to nothing.
                steps = 0.05 if all(isinstance(x, Column) for x in exprs) else 0.5
                return Estimate(
                    e.rate, e.rows, e.state_rows, e.work + steps * e.rate, _projected(exprs, e.sample), e.anew
                )
            case Prioritise(below, _):
                e = self.node(below)
                return Estimate(e.rate, e.rows, e.state_rows, e.work + 0.5 * e.rate, e.sample, e.anew)
            case Join() | SemiJoin():
                return self._join(node)
            case Aggregate(below, keys, _, _):
                e = self.node(below)
                groups, figure = _groups(keys, e)
                steps = (2.5 if e.anew == 1.0 else 2.3) * e.rate
                return Estimate(2 * e.rate, groups, e.state_rows + groups, e.work + steps, None, e.anew, figure)
            case Distinct(below):
                e = self.node(below)
                columns = [Column(i, f.type, f.name) for i, f in enumerate(below.schema)]
                rows, figure = _groups(columns, e) if e.sample is not None else (e.rows * 0.5, _DISTINCT)
                share = min(1.0, rows / max(e.rows, 1.0))
                steps = BY_VALUE * e.rate
                return Estimate(e.rate * share, rows, e.state_rows + rows, e.work + steps, e.sample, e.anew, figure)
            case SetOp(kind, all_, left, right):
                a, b = self.node(left), self.node(right)
                kept = 0.0 if kind == "union" and all_ else a.rows + b.rows
                rows = a.rows + b.rows if kind == "union" else a.rows * 0.5
                rate = a.rate + b.rate
                steps = rate if not kept else BY_VALUE * rate
                return Estimate(rate, rows, a.state_rows + b.state_rows + kept, a.work + b.work + steps, None, a.anew)
            case TopN(below, _, limit, _):
                e = self.node(below)
                rows = e.rows if limit is None else min(e.rows, float(limit))
                steps = RANKED * e.rate
                return Estimate(e.rate, rows, e.state_rows + e.rows, e.work + steps, e.sample, e.anew)

    def _measured(self, source: str) -> Measured:
        return self._figures.get(source, _NOTHING)

    def _sample(self, source: str) -> tuple[Row, ...] | None:
        """Rows of a source; None if there are too few."""
        take = self._measured(source).sample
        rows = () if take is None else tuple(take())
        return rows if len(rows) >= ENOUGH else None

    def _query(self, query: Query) -> Estimate:
        e = self.node(query.input)
        rate, sample = e.rate, e.sample if query.output in ("istream", "windows") else None
        if query.output == "rstream":
            rate *= e.rows
        emitted = rate
        spec = bounded_window(query)
        if spec is not None:
            windows = self._windows(query, spec)
            rate = emitted = e.rows * windows
            if not reuses(query):
                emitted += _opened(query) * windows
            elif not isinstance(below_steps(query.input), Aggregate):
                # The result is kept, row by row; groups are kept by those who count them.
                emitted = KEPT * emitted + CHANGED * e.rate
        return Estimate(rate, rate * HORIZON_SECONDS, e.state_rows, e.work + emitted, sample)

    def _windows(self, node: Node, spec: WindowSpec) -> float:
        """How many windows end in a second."""
        match spec:
            case Generic(unit="time", hop_high=hop):
                return TICKS_PER_SECOND / hop if hop > 0 else 1.0 / HORIZON_SECONDS
            case Generic(hop_high=hop):
                rate = max(self.node(w.input).rate for w in bounded_windows(node))
                return rate / hop if hop > 0 else 1.0 / HORIZON_SECONDS
            case Session(gap, _):
                return TICKS_PER_SECOND / max(1, 2 * gap)
        raise AssertionError(f"{spec} is not bounded")

    def _window(self, node: Window) -> Estimate:
        e, spec = self.node(node.input), node.spec
        figure, rows = None, window_rows(spec, e.rate)
        if isinstance(spec, PartitionRows):
            schema = node.schema
            keys, figure = _groups([Column(k, schema[k].type) for k in spec.keys], e)
            rows = float(spec.size) * keys
        anew = 0.0
        if isinstance(spec, Generic | Session) and not (node.reuse and _overlaps(spec)):
            rate, anew = rows * self._windows(node, spec), 1.0
        elif isinstance(spec, Generic):
            every = rows * self._windows(node, spec)  # 0: no row ever comes
            rate, anew = e.rate * REUSED, min(1.0, e.rate / every) if every else 0.0
        else:
            rate = e.rate * (1 if isinstance(spec, Unbounded) or not node.retractions else 2)
        # Wide rows take more room and time, so that a plan that drops columns early is the cheaper one.
        width = len(node.schema)
        state, steps = rows * (1 + width / 8), rate * (1 + width / 16)
        return Estimate(rate, rows, e.state_rows + state, e.work + steps, e.sample, anew, figure)

    def _join(self, node: Join | SemiJoin) -> Estimate:
        a, b = self.node(node.left), self.node(node.right)
        by_key, pairs, figure = _matching(node, a, b)
        passing, sample = 1.0, pairs
        if node.residual is not None:
            passing, sample, other = _filtered(node.residual, pairs)
            figure = figure or other
        matched = by_key * passing
        # Of two rows that come for the same bounded window the second finds the first.
        anew = min(a.anew, b.anew)
        meet = (a.rate * b.rows + b.rate * a.rows) * (1 - anew / 2)
        state = a.state_rows + b.state_rows + a.rows + b.rows
        work = a.work + b.work + a.rate + b.rate + meet * by_key
        anew = max(a.anew, b.anew)
        if isinstance(node, SemiJoin):
            share = 1.0 if node.kind == "mark" else 0.5
            return Estimate((a.rate + b.rate) * share, a.rows * share, state, work, None, anew, figure)
        rate = meet * matched
        rows = a.rows * b.rows * matched
        if node.kind in ("left", "full"):
            rows, rate = max(rows, a.rows), max(rate, a.rate)
        if node.kind in ("right", "full"):
            rows, rate = max(rows, b.rows), max(rate, b.rate)
        if node.kind != "inner":
            sample = None
        return Estimate(rate, rows, state, work + rate, sample, anew, figure)


_NOTHING = Measured()
_DISTINCT = Figure("half of the rows are distinct", False)
GROUPING, OPENED = 10_000.0, 1_500.0
"""Steps to make an operator for a bounded window from nothing: one that groups, and another. Measured with
``benchmarks.plans``, as those below."""
KEPT, CHANGED, BY_VALUE, RANKED = 8.0, 30.0, 130.0, 400.0
"""Steps for a row of a result that is kept from one bounded window to the next, for one of it that comes or goes, and
for a row that DISTINCT or ORDER BY takes: what is visited row by row costs so many times more than what is done in
columns."""
REUSED = 1.5
"""Steps for a row that comes into a bounded window and leaves it again, where one of a window from nothing costs 1:
less than 2, since the operators are there already."""


def _opened(query: Query) -> float:
    """Steps to make what is made for each bounded window."""
    steps = 0.0
    for node in nodes_of(query, into_queries=False):
        if isinstance(node, Aggregate):
            steps += GROUPING
        elif isinstance(node, Join | SemiJoin | Distinct | SetOp | TopN):
            steps += OPENED
    return steps


def _figure(text: str, value: float, measured: bool) -> Figure:
    return Figure(text.format(f"{value:,.0f}" if value >= 10 else f"{value:.3g}"), measured)


def _overlaps(spec: Generic | Session) -> bool:
    if not isinstance(spec, Generic) or spec.hop_low < 0 or spec.hop_high <= 0:
        return False
    return spec.hop_low < spec.end - spec.begin


# -- samples ------------------------------------------------------------------------------------------------


def _computable(expr: Expr) -> bool:
    """Whether a sample says what an expression gives: functions of users are not called for that."""
    return is_pure(expr) and not any(isinstance(part, WindowBound) for part in walk(expr))


def _filtered(predicate: Expr, sample: tuple[Row, ...] | None) -> tuple[float, tuple[Row, ...] | None, Figure]:
    """Which share of the rows passes, and those of the sample that do."""
    if sample is None or not _computable(predicate):
        share = selectivity(predicate)
        return share, sample, _figure("{} % of the rows pass", 100 * share, False)
    context = Context()
    passed = tuple(row for row in sample if evaluate(predicate, row, context) is True)
    # Half a row more: that none of them passed does not mean that none ever does.
    share = min(1.0, (len(passed) + 0.5) / len(sample))
    return share, passed if len(passed) >= ENOUGH else None, _figure("{} % of the rows pass", 100 * share, True)


def _projected(exprs: Sequence[Expr], sample: tuple[Row, ...] | None) -> tuple[Row, ...] | None:
    if sample is None or not all(map(_computable, exprs)):
        return None
    return tuple(zip(*(_values(e, sample) for e in exprs), strict=True))


def _keys_of(exprs: Sequence[Expr], sample: Sequence[Row]) -> list[Hashable]:
    """The key of each row; None where part of it is NULL."""
    keys = zip(*(_values(e, sample) for e in exprs), strict=True)
    return [None if None in key else hashable(key) for key in keys]


def _values(expr: Expr, sample: Sequence[Row]) -> list[object]:
    if isinstance(expr, Column):
        return [row[expr.index] for row in sample]
    context = Context()
    return [evaluate(expr, row, context) for row in sample]


def _groups(keys: Sequence[Expr], below: Estimate) -> tuple[float, Figure | None]:
    """How many values keys have in a relation: those that came once in the sample stand for more that it lacks."""
    if not keys:
        return 1.0, None
    rows = max(below.rows, 1.0)
    if below.sample is None or not all(map(_computable, keys)):
        groups = min(rows, KEY_VALUES ** len(keys))
        return groups, _figure("{} values of the key", groups, False)
    counts = Counter(_keys_of(keys, below.sample))
    once = sum(1 for n in counts.values() if n == 1)
    scale = math.sqrt(max(1.0, rows / len(below.sample)))
    groups = max(1.0, min(rows, scale * once + len(counts) - once))
    return groups, _figure("{} values of the key", groups, True)


def _matching(node: Join | SemiJoin, a: Estimate, b: Estimate) -> tuple[float, tuple[Row, ...] | None, Figure | None]:
    """Which share of all pairs has equal keys, and some of these pairs."""
    left, right = [k for k, _ in node.keys], [k for _, k in node.keys]
    if a.sample is None or b.sample is None or not all(map(_computable, (*left, *right))):
        share = KEY_VALUES ** -len(node.keys)
        return share, None, _figure("1 of {} pairs matches", 1 / share, False) if node.keys else None
    if not node.keys:
        chosen = random.Random(1)
        return 1.0, tuple(map(add, chosen.choices(a.sample, k=SAMPLE), chosen.choices(b.sample, k=SAMPLE))), None
    partners: dict[Hashable, list[Row]] = defaultdict(list)
    for row, key in zip(b.sample, _keys_of(right, b.sample), strict=True):
        if key is not None:
            partners[key].append(row)
    keys = _keys_of(left, a.sample)
    upto = list(accumulate(len(partners.get(key, ())) for key in keys))
    found = upto[-1]
    share = min(1.0, max(found, 0.5) / (len(a.sample) * len(b.sample)))
    pairs = []
    for i in range(min(found, SAMPLE)):
        number = i * found // min(found, SAMPLE)
        place = bisect_right(upto, number)
        pairs.append(a.sample[place] + partners[keys[place]][upto[place] - 1 - number])
    figure = _figure("1 of {} pairs matches", 1 / share, True)
    return share, tuple(pairs) if len(pairs) >= ENOUGH else None, figure


# -- defaults -----------------------------------------------------------------------------------------------


def window_rows(spec: WindowSpec, rate: float) -> float:
    """The rows a window holds when this many enter per second."""
    match spec:
        case Unbounded():
            return rate * HORIZON_SECONDS
        case Now():
            return max(1.0, rate / TICKS_PER_SECOND)
        case Rows(size, _):
            return float(size)
        case PartitionRows(keys, size):
            return float(size) * KEY_VALUES ** len(keys)
        case Range(size, _):
            return max(1.0, rate * size / TICKS_PER_SECOND)
        case Session(gap, _):
            return max(1.0, rate * 2 * gap / TICKS_PER_SECOND)
        case Generic(unit, begin, end, low, high, _, _):
            if unit == "tuples":
                return float(max(1, end - begin + 1))
            seconds = (end - begin) / TICKS_PER_SECOND if low == high else HORIZON_SECONDS / 2
            return max(1.0, rate * seconds)


def selectivity(condition: Expr) -> float:
    """The share of rows for which a condition is taken to be TRUE."""
    match condition:
        case Literal(value, _):
            return 1.0 if value is True else 0.0
        case Call("and", args, _):
            result = 1.0
            for arg in args:
                result *= selectivity(arg)
            return result
        case Call("or", args, _):
            rest = 1.0
            for arg in args:
                rest *= 1.0 - selectivity(arg)
            return 1.0 - rest
        case Call("not", (arg,), _):
            return 1.0 - selectivity(arg)
        case Call("in", args, _):
            return min(0.5, 0.1 * (len(args) - 1))
        case Call(name, _, _):
            return _SELECTIVITY.get(name, 0.5)
    return 0.5
