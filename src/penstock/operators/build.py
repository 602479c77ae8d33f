"""From a logical plan to operators: which operator serves which node, and what each must tell the next.

``build`` gives a ``Tree``: leaves (windows over sources, relations) and the operators above them in the order they
are called. Three choices are made here, from the plan alone:

- the *mode* of the leaves: ``insert`` (nobody needs to know that rows leave), ``ends`` (rows say in advance when they
  leave; joins need no more) or ``changes``;
- the specialised operator where it supports the node, else the general one;
- whether the topmost stateful operator must build rows that leave.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal as OneOf
from typing import Protocol, runtime_checkable

from penstock.model.delta import Arrivals, Delta, Step
from penstock.model.errors import QueryFailed
from penstock.model.schema import Schema
from penstock.operators import identity
from penstock.operators.base import NOTHING, Operator, StateSize, WindowOperator
from penstock.operators.priority import SetPriority
from penstock.operators.state import LoadedState, State, Stateful, is_stateful
from penstock.operators.stateless import FilterProject
from penstock.plan.derive import begins_with_rows, passes_on
from penstock.plan.nodes import (
    Aggregate,
    Distinct,
    Join,
    Node,
    Prioritise,
    RelationScan,
    SemiJoin,
    SetOp,
    TopN,
    Window,
    is_stream,
    relation_scans,
    walk,
    windows,
)
from penstock.plan.steps import RowStep, steps_of
from penstock.plan.window import Now, PartitionRows, Range, Unbounded, is_bounded
from penstock.scalar import Context

Functions = Mapping[str, Callable[..., object]]
Mode = OneOf["insert", "ends", "changes"]
_ORDERED = {"first", "last", "collect"}


@runtime_checkable
class OwnLeaf(Protocol):
    """A window or relation that brings an operator of its own, which works on the rows of a plain one.

    Plug-in point: another way to run a query (``graph.masters``) may put such leaves into its plan.
    """

    label: str
    """What the operator does, for people."""

    @property
    def plain(self) -> Window | RelationScan:
        """What the operator works on."""

    def operator(self) -> Operator:
        """The operator, which remembers nothing."""


@dataclass
class Leaf:
    """A window over a source, or a relation. ``operator`` is None for relations and for bounded windows.

    ``chain``: what stands below the window, bottom to top, and ``chain_identity`` what tells it from others. ``smart``:
    the window needs to know of master instants.
    """

    node: Window | RelationScan
    position: int
    schema: Schema
    stateless: FilterProject | None = None
    operator: WindowOperator | None = None
    mode: Mode = "changes"
    chain: tuple[RowStep, ...] = ()
    chain_identity: Hashable = ()
    errors: Context | None = None
    smart: bool = False

    @property
    def bounded(self) -> bool:
        return isinstance(self.node, Window) and is_bounded(self.node.spec)

    def arrivals(self, arrivals: Arrivals) -> Arrivals:
        """The elements that reach the window."""
        return arrivals if self.stateless is None else self.stateless.process_arrivals(arrivals)


@dataclass
class Stage:
    """An operator and where its inputs come from: numbers of earlier stages, or ~i for leaf i.

    Two stages of equal ``identity`` over equal inputs do the same. ``node`` is the topmost node it stands for,
    ``errors`` is where its failures are counted. ``mirrored``, of a join: the node and the identity of the join that
    has the sides the other way round.
    """

    name: str
    operator: Operator
    inputs: tuple[int, ...]
    node: Node
    identity: tuple[str, Hashable]
    errors: Context
    mirrored: tuple[Join, tuple[str, Hashable]] | None = None


@dataclass
class Tree:
    """The operators of one query below its output."""

    leaves: list[Leaf] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    root: int = -1

    def process(self, leaves: Sequence[Delta], step: Step) -> Delta:
        """Call every operator once."""
        done: list[Delta] = []
        for stage in self.stages:
            try:
                done.append(stage.operator.process([leaves[~i] if i < 0 else done[i] for i in stage.inputs], step))
            except MemoryError:
                size = stage.operator.size()
                raise QueryFailed(
                    f"out of memory in operator {stage.name}, which holds {size.rows:,} rows, {size.bytes:,} bytes",
                    hint="use a smaller window, or fewer columns",
                ) from None
        return leaves[~self.root] if self.root < 0 else done[self.root]

    def save(self) -> State:
        """The state of every operator that has one, by path."""
        return {path: operator.save() for path, operator in self._stateful}

    def load(self, state: LoadedState) -> None:
        """Go on from what operators of the same plan saved."""
        for path, operator in self._stateful:
            operator.load(state[path])

    def catch_up(self, state: LoadedState) -> None:
        """Go on from a later state of the same operators."""
        for path, operator in self._stateful:
            operator.catch_up(state[path])

    @cached_property
    def _stateful(self) -> list[tuple[str, Stateful]]:
        operators: dict[str, Operator | WindowOperator | None] = {
            **{f"leaf {i}": leaf.operator for i, leaf in enumerate(self.leaves)},
            **{f"stage {i}": stage.operator for i, stage in enumerate(self.stages)},
        }
        found: list[tuple[str, Stateful]] = []
        for path, operator in operators.items():
            if is_stateful(operator):
                found.append((path, operator))
            else:
                assert operator is None or operator.size() == NOTHING, f"{path} cannot be saved"
        return found

    def sizes(self) -> dict[str, StateSize]:
        """What each operator remembers, by its name."""
        sizes: dict[str, StateSize] = {}
        for i, stage in enumerate(self.stages):
            sizes[f"{i}:{stage.name}"] = stage.operator.size()
        for i, leaf in enumerate(self.leaves):
            if leaf.operator is not None:
                sizes[f"{i}:{type(leaf.node).__name__}"] = leaf.operator.size()
        return sizes


def leaf_mode(node: Node, insertions_only: bool) -> Mode:
    """What the leaves below ``node`` must tell, when above it only insertions count (or not)."""
    if not insertions_only:
        return "changes"
    passed = {passes_on(n) for n in walk(node, into_queries=False)}
    if "other" in passed or relation_scans(node, into_queries=False):
        return "changes"
    if "pairs" not in passed:
        return "insert"
    return "ends" if all(map(_ends_by_time, windows(node))) else "changes"


def _ends_by_time(window: Window) -> bool:
    spec = window.spec
    return isinstance(spec, Now | Unbounded) or (isinstance(spec, Range) and spec.slide is None)


def _goes_by_order(node: Aggregate) -> bool:
    """Whether the aggregate depends on the order in which rows came."""
    return any(call.function in _ORDERED for call in node.aggregates)


class _Builder:
    def __init__(self, mode: Mode, functions: Functions, errors: Callable[[], Context], smart: bool) -> None:
        self.mode, self.functions, self.new_errors, self.smart = mode, functions, errors, smart
        self.errors = errors()
        self.tree = Tree()

    def add(self, name: str, operator: Operator, node: Node, what: Hashable, *inputs: int) -> int:
        """Another stage; whatever was made for it counts its failures in ``self.errors``."""
        self.tree.stages.append(Stage(name, operator, inputs, node, (name, what), self.errors))
        self.errors = self.new_errors()
        return len(self.tree.stages) - 1

    def node(self, node: Node, leaving: bool, moments: bool) -> tuple[int, bool]:
        """(number of the stage or ~leaf, whether rows leave it in the order they entered).

        ``leaving``: whether somebody above needs the rows that leave; ``moments``: whether somebody goes by moments.
        """
        chain, below = steps_of(node)
        if chain:
            number, fifo = self.node(below, leaving, moments)
            operator = FilterProject(chain, below.schema, self.functions, self.errors)
            what = identity.chain(chain, below.schema, self.functions)
            return self.add("FilterProject", operator, node, what, number), fifo
        match node:
            case Window() | RelationScan():
                return self.leaf(node)
            case Join():
                return self.join(node, leaving, moments), False
            case Aggregate():
                return self.aggregate(node, leaving, moments), False
            case SetOp(kind="union", all=True):
                left, _ = self.node(node.left, leaving, moments)
                right, _ = self.node(node.right, leaving, moments)
                return self.add("Union", self.general(node, moments), node, moments, left, right), False
            case SemiJoin() | SetOp():
                left, _ = self.node(node.left, True, moments)
                right, _ = self.node(node.right, True, moments)
                what = (identity.node(node, self.functions), moments)
                return self.add(type(node).__name__, self.general(node, moments), node, what, left, right), False
            case Prioritise():
                number, fifo = self.node(node.input, leaving, moments)
                by = identity.node(node, self.functions)
                return self.add("Priority", SetPriority(node, self.functions, self.errors), node, by, number), fifo
            case Distinct() | TopN():
                number, _ = self.node(node.input, True, moments)
                what = (identity.node(node, self.functions), moments)
                return self.add(type(node).__name__, self.general(node, moments), node, what, number), False
        raise TypeError(f"{type(node).__name__} cannot stand here")

    def leaf(self, node: Window | RelationScan) -> tuple[int, bool]:
        if isinstance(node, OwnLeaf):
            number, fifo = self.leaf(node.plain)
            operator = node.operator()
            return self.add(type(operator).__name__, operator, node, (), number), fifo
        if isinstance(node, RelationScan):
            self.tree.leaves.append(Leaf(node, node.position, node.schema))
            return ~(len(self.tree.leaves) - 1), False
        chain, below = steps_of(node.input)
        assert is_stream(below)
        leaf = Leaf(node, below.position, node.schema, mode=self.mode)
        if chain:
            leaf.chain = tuple(chain)
            leaf.stateless = FilterProject(leaf.chain, below.schema, self.functions, self.errors)
            leaf.chain_identity = identity.chain(leaf.chain, below.schema, self.functions)
            leaf.errors, self.errors = self.errors, self.new_errors()
        if not leaf.bounded:
            from penstock.operators.smart import build_smart, is_smart
            from penstock.operators.window import build_window

            leaf.smart = self.smart and is_smart(node.spec)
            if leaf.smart:
                leaf.operator = build_smart(node.spec, node.schema)
            else:
                leaf.operator = build_window(node.spec, node.schema, self.mode)
        self.tree.leaves.append(leaf)
        return ~(len(self.tree.leaves) - 1), not isinstance(node.spec, PartitionRows)

    def join(self, node: Join, leaving: bool, moments: bool) -> int:
        from penstock.operators import fast_join

        inputs_leave = leaving or self.mode == "changes"
        left, left_fifo = self.node(node.left, inputs_leave, moments)
        right, right_fifo = self.node(node.right, inputs_leave, moments)
        ends = self.mode == "ends"
        name, how = "Join", (moments, False)
        if fast_join.supports(node, left_fifo, right_fifo, ends=ends):
            name, how = "FastJoin", (leaving, ends)
            operator: Operator = fast_join.FastJoin(node, self.functions, self.errors, emit_leaving=leaving, ends=ends)
        else:
            operator = self.general(node, moments)
        number = self.add(name, operator, node, (how, identity.join(node, self.functions)), left, right)
        turned = node.turned
        self.tree.stages[number].mirrored = turned, (name, (how, identity.join(turned, self.functions)))
        return number

    def aggregate(self, node: Aggregate, leaving: bool, moments: bool) -> int:
        from penstock.operators import fast_aggregate

        number, fifo = self.node(node.input, True, moments or _goes_by_order(node))
        what = identity.node(node, self.functions)
        if not moments and fast_aggregate.supports(node, fifo=fifo):
            fast = fast_aggregate.FastAggregate(
                node, self.functions, self.errors, fifo=fifo, emit_leaving=leaving
            )
            return self.add("FastAggregate", fast, node, (what, fifo, leaving), number)
        return self.add("Aggregate", self.general(node, moments), node, (what, moments), number)

    def general(self, node: Node, moments: bool) -> Operator:
        from penstock.operators.aggregate import GeneralAggregate
        from penstock.operators.distinct import GeneralDistinct, GeneralSetOp
        from penstock.operators.join import GeneralJoin
        from penstock.operators.semijoin import GeneralSemiJoin
        from penstock.operators.topn import GeneralTopN

        match node:
            case Aggregate():
                return GeneralAggregate(node, self.functions, self.errors, moments=moments)
            case Join():
                return GeneralJoin(node, self.functions, self.errors)
            case SemiJoin():
                return GeneralSemiJoin(node, self.functions, self.errors)
            case Distinct():
                return GeneralDistinct(node, self.functions, self.errors, moments=moments)
            case SetOp():
                return GeneralSetOp(node, self.functions, self.errors, moments=moments)
            case TopN():
                return GeneralTopN(node, self.functions, self.errors, moments=moments)
        raise TypeError(f"no operator for {type(node).__name__}")


def mirrored(stage: Stage, functions: Functions, errors: Context) -> Stage:
    """A stage that joins, with the sides the other way round."""
    from penstock.operators.fast_join import FastJoin
    from penstock.operators.join import GeneralJoin

    assert stage.mirrored is not None, "it joins"
    node, what = stage.mirrored
    own = stage.operator
    if isinstance(own, FastJoin):
        made: Operator = FastJoin(node, functions, errors, emit_leaving=own.emit_leaving, ends=own.ends)
    else:
        made = GeneralJoin(node, functions, errors)
    return replace(stage, operator=made, inputs=stage.inputs[::-1], node=node, identity=what, errors=errors)


def build(
    node: Node,
    functions: Functions,
    errors: Callable[[], Context],
    *,
    insertions_only: bool,
    gated: bool = False,
    smart: bool = False,
) -> Tree:
    """The operators for a plan below its ``Query``.

    ``errors`` gives, for each operator, where its failures are counted. ``insertions_only``: rows that leave the result
    do not count. ``gated``: changes wait behind the leaves for the instants of evaluation (MASTER), and must all be
    known there. ``smart``: windows do that themselves if they can.
    """
    mode = leaf_mode(node, insertions_only and not gated)
    builder = _Builder(mode, functions, errors, smart)
    # What is there before the first instant may leave at it, and then is no answer.
    builder.tree.root, _ = builder.node(node, not insertions_only or begins_with_rows(node), False)
    return builder.tree
