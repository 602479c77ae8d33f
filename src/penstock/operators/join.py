"""Join of any kind, on any condition."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from penstock.model.delta import BEGINNING, MAX_TS, Delta, Step
from penstock.operators.base import StateSize
from penstock.operators.evaluation import Errors, Evaluation, Functions, equality_key_of, reader, row_key_of
from penstock.operators.priority import combined_one
from penstock.operators.rows import Changes, Output, Row, by_instant, size_of
from penstock.operators.sides import Entry, OrderedSide, Side, inequality, mirrored
from penstock.operators.state import Loaded, Saved, together, with_meta
from penstock.plan.nodes import Join
from penstock.scalar.expr import conjunction


class GeneralJoin:
    """Pairs of rows of two inputs; see ``plan.nodes.Join``.

    Needs clean deltas of both inputs. Promises the pairs that come and go at each instant, every pair with the later
    moment and the higher priority of its rows; the padding of an outer join changes only where a row has matches after
    an instant and had none before it, or the other way round.

    A row looks at the rows of the other side with its key. Without keys it looks at those on the right side of the
    residual's first inequality between the sides, which are kept in its order; failing that, at all of them.

    Where rows say their ``end`` (inner joins only), a row is part of no pair from that ts on, a pair ends with the
    first of its two rows, and nothing is reported when time ends it. Rows that leave otherwise take their living
    pairs with them.

    Bounded by the rows of both inputs. A row is forgotten when it leaves, or when the frontier reaches its end.
    """

    def __init__(self, node: Join, functions: Functions, errors: Errors) -> None:
        self.node, self.functions = node, functions
        self._evaluation = Evaluation(functions, errors)
        self._pads = (node.kind in ("left", "full"), node.kind in ("right", "full"))
        self._nulls: tuple[tuple[None, ...], tuple[None, ...]] = (
            (None,) * len(node.left.schema),
            (None,) * len(node.right.schema),
        )
        entering = self._evaluation.entering
        identities = row_key_of(node.left.schema), row_key_of(node.right.schema)
        ordering, parts = inequality(node.residual, len(node.left.schema))
        residual = node.residual
        self._sides: tuple[Side, Side]
        if node.keys or ordering is None:
            self._sides = (
                Side(node.left.schema, equality_key_of([k for k, _ in node.keys], entering), identities[0]),
                Side(node.right.schema, equality_key_of([k for _, k in node.keys], entering), identities[1]),
            )
        else:
            residual = conjunction(parts)
            by_left, by_right = reader(ordering.left, entering), reader(ordering.right, entering)
            self._sides = (
                OrderedSide(node.left.schema, by_left, mirrored(ordering.function), identities[0]),
                OrderedSide(node.right.schema, by_right, ordering.function, identities[1]),
            )
        self._test = None
        if residual is not None:
            self._test = reader(residual, entering), reader(residual, self._evaluation.leaving)
        self._ends = False
        self._expiry: list[tuple[int, int, int, Entry]] = []

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        self._evaluation.begin(step)
        self._ends = self._ends or any(d.end is not None for d in inputs)
        output = Output(self.node.schema)
        for instant, changes in by_instant(inputs):
            self._expire(instant[0])
            leaving: list[Row] = []
            entering: list[Row] = []
            self._change(changes, leaving, entering)
            output.add(instant, leaving, entering)
        self._expire(step.frontier[0])
        return output.delta(ends=self._ends)

    def answers_alone(self, side: int) -> bool:
        """Whether a row that enters at a side changes nothing but what it is part of itself."""
        return not self._pads[1 - side]

    def foretold(self, side: int, rows: Delta) -> Delta:
        """What rows of a side would give if they entered now, each at its own instant. Nothing is changed."""
        self._evaluation.begin(Step(BEGINNING))
        output = Output(self.node.schema)
        for instant, changes in by_instant([rows]):
            found: list[Row] = []
            for row in changes[0].entering:
                entry = self._sides[side].entry(row)
                pairs = [self._pair(side, row, other.row) for other in self._matches(side, entry, new=False)]
                found += pairs or ([self._padded(side, row)] if self._pads[side] else [])
            output.add(instant, [], found)
        return output.delta()

    def known(self, side: int, rows: Delta) -> None:
        """Rows enter at a side, and nobody asks for the pairs."""
        self._evaluation.begin(Step(BEGINNING))
        for _, changes in by_instant([rows]):
            for row in changes[0].entering:
                self._sides[side].add(row)

    def size(self) -> StateSize:
        left, right = self._sides
        return size_of(len(left), self.node.left.schema) + size_of(len(right), self.node.right.schema)

    def rows(self, side: int) -> int:
        """Rows of the left (0) or right (1) input that are held."""
        return len(self._sides[side])

    def save(self) -> Saved:
        left, right = self._sides
        return with_meta(together(left=left.save(), right=right.save()), ends=self._ends)

    def load(self, state: Loaded) -> None:
        self._ends = state.meta["ends"]
        for i, (name, side) in enumerate(zip(("left", "right"), self._sides, strict=True)):
            side.load(state.part(name))
            self._expiry += [(e.row.end, e.number, i, e) for e in side if e.row.end < MAX_TS]
        heapq.heapify(self._expiry)

    def catch_up(self, state: Loaded) -> None:
        self._ends = state.meta["ends"]
        for i, (name, side) in enumerate(zip(("left", "right"), self._sides, strict=True)):
            _, new = side.catch_up(state.part(name))
            for entry in new:
                if entry.row.end < MAX_TS:
                    heapq.heappush(self._expiry, (entry.row.end, entry.number, i, entry))
        while self._expiry and not self._expiry[0][3].alive:
            heapq.heappop(self._expiry)

    def _change(self, changes: Sequence[Changes], leaving: list[Row], entering: list[Row]) -> None:
        # How many matches a row of a padded side had before this instant; -1: it was not there.
        before: tuple[dict[Entry, int], dict[Entry, int]] = ({}, {})
        for side in (0, 1):
            others = before[1 - side] if self._pads[1 - side] else None
            for row in changes[side].leaving:
                entry = self._sides[side].remove(row)
                for other in self._matches(side, entry, new=False):
                    leaving.append(self._pair(side, row, other.row))
                    if others is not None:
                        others.setdefault(other, other.matches)
                        self._sides[1 - side].changes(other)
                        other.matches -= 1
                if self._pads[side] and before[side].pop(entry, entry.matches) == 0:
                    leaving.append(self._padded(side, row))
        for side in (0, 1):
            others = before[1 - side] if self._pads[1 - side] else None
            for row in changes[side].entering:
                entry = self._sides[side].add(row)
                if self._pads[side]:
                    before[side][entry] = -1
                if row.end < MAX_TS:
                    heapq.heappush(self._expiry, (row.end, entry.number, side, entry))
                for other in self._matches(side, entry, new=True):
                    entry.matches += 1
                    entering.append(self._pair(side, row, other.row))
                    if others is not None:
                        others.setdefault(other, other.matches)
                        self._sides[1 - side].changes(other)
                        other.matches += 1
        for side in (0, 1):
            for entry, matches in before[side].items():
                if matches == 0 < entry.matches:
                    leaving.append(self._padded(side, entry.row))
                elif matches != 0 == entry.matches:
                    entering.append(self._padded(side, entry.row))

    def _matches(self, side: int, entry: Entry, *, new: bool) -> Iterable[Entry]:
        """The rows of the other side that make a pair with this one; failures count where the row is new."""
        found = self._sides[1 - side].candidates(entry.key)
        if self._test is None:
            return found
        test = self._test[0 if new else 1]
        values = entry.row.values
        if side == 0:
            return [other for other in found if test(values + other.row.values) is True]
        return [other for other in found if test(other.row.values + values) is True]

    def _padded(self, side: int, row: Row) -> Row:
        nulls = self._nulls[1 - side]
        return row._replace(values=row.values + nulls if side == 0 else nulls + row.values)

    def _expire(self, now: int) -> None:
        while self._expiry and self._expiry[0][0] <= now:
            _, _, side, entry = heapq.heappop(self._expiry)
            if entry.alive:
                self._sides[side].discard(entry)

    def _pair(self, side: int, row: Row, other: Row) -> Row:
        values = row.values + other.values if side == 0 else other.values + row.values
        priority = combined_one(self.node.priority, row.priority, other.priority)
        return Row(values, max(row.moment, other.moment), priority, min(row.end, other.end))
