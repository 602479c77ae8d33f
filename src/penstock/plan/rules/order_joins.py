"""Choose the order of inner joins: small inputs first, along equalities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.plan.cost import Cost, Costs
from penstock.plan.nodes import Join, Node, Project, Query, conditions, expressions, map_inputs
from penstock.plan.scope import all_columns, each_query, equality, names_of, shift
from penstock.scalar.expr import Expr, columns, conjunction, is_pure, remap
from penstock.scalar.failing import can_fail


@dataclass(frozen=True)
class Chain:
    """Inner joins taken apart: the inputs, and all conditions over their rows one after the other."""

    inputs: tuple[Node, ...]
    conditions: tuple[Expr, ...]

    def columns_of(self, i: int) -> range:
        """The positions that input ``i`` has in the joined row."""
        start = sum(len(n.schema) for n in self.inputs[:i])
        return range(start, start + len(self.inputs[i].schema))

    @property
    def can_fail(self) -> bool:
        """Whether a condition may have no value on some rows: on how many it is computed, and so whether a strict query
        stops, depends on the order. What has been measured must not decide that."""
        return any(map(can_fail, self.conditions))


def order_joins(query: Query, costs: Costs | None = None) -> Query:
    """Rebuild each chain of inner joins in the cheaper order; as it is where nothing is gained. ``costs``: by which
    that is decided, else by defaults.

    A projection puts the columns back. A joined row is the same pair of rows in any order, and its moment is
    the latest of all, so neither identities nor first/last notice.
    """
    known = costs or Costs()
    return each_query(query, lambda q: replace(q, input=_down(q.input, known)))


def _down(node: Node, costs: Costs) -> Node:
    return on_chains(node, lambda join, chain: _reordered(join, chain, costs))


def _reordered(node: Node, chain: Chain, costs: Costs) -> Node:
    chain = replace(chain, inputs=tuple(_down(n, costs) for n in chain.inputs))
    same = _with_leaves(node, list(chain.inputs))
    costs = Costs() if chain.can_fail else costs
    best = put_together(chain, _greedy(chain, costs))
    return best if _total(best, costs) < 0.999 * _total(same, costs) else same


def on_chains(node: Node, change: Callable[[Node, Chain], Node]) -> Node:
    """Apply ``change`` to every topmost chain of joins of a query: the join it ends with, and the chain."""
    chain = take_apart(node)
    if chain is None:
        return map_inputs(node, lambda child: on_chains(child, change), into_queries=False)
    return change(node, chain)


def take_apart(node: Node) -> Chain | None:
    """The chain whose topmost join is this node; None where it is no inner join or may not be touched."""
    if not (isinstance(node, Join) and node.kind == "inner" and _may_move(node)):
        return None
    leaves: list[Node] = []
    found: list[Expr] = []
    for side in (node.left, node.right):
        start = sum(len(n.schema) for n in leaves)
        below = take_apart(side)
        if below is None:
            leaves.append(side)
        else:
            leaves += below.inputs
            found += [shift(c, start) for c in below.conditions]
    return Chain(tuple(leaves), (*found, *conditions(node)))


def _may_move(node: Join) -> bool:
    if node.priority != "max":
        return False  # it is that of the joins as they were written
    # A key without columns of its side would not be found again as a key.
    return all(map(is_pure, expressions(node))) and all(columns(e) for pair in node.keys for e in pair)


def _with_leaves(node: Node, leaves: list[Node]) -> Node:
    """The same joins over rewritten inputs, taken from the front of ``leaves``."""
    if take_apart(node) is None:
        return leaves.pop(0)
    return map_inputs(node, lambda side: _with_leaves(side, leaves))


def put_together(chain: Chain, order: Sequence[int]) -> Node:
    """Left-deep joins of the inputs in the given order, with the columns in the original order."""
    position: dict[int, int] = {}
    pending = list(chain.conditions)
    result: Node | None = None
    for i in order:
        split = len(position)
        for column in chain.columns_of(i):
            position[column] = len(position)
        if result is None:
            result = chain.inputs[i]
            continue
        ready = [c for c in pending if columns(c) <= position.keys()]
        pending = [c for c in pending if c not in ready]
        keys: list[tuple[Expr, Expr]] = []
        rest: list[Expr] = []
        for condition in ready:
            moved = remap(condition, position)
            key = equality(moved, split)
            if key is None:
                rest.append(moved)
            else:
                keys.append(key)
        result = Join("inner", result, chain.inputs[i], tuple(keys), conjunction(rest))
    assert result is not None
    if list(order) == sorted(order):
        return result
    schema = tuple(f for n in chain.inputs for f in n.schema)
    exprs = tuple(remap(e, position) for e in all_columns(schema))
    return Project(result, exprs, names_of(schema))


def _greedy(chain: Chain, costs: Costs) -> list[int]:
    left = set(range(len(chain.inputs)))
    first = min(left, key=lambda i: (costs.node(chain.inputs[i]).rows, i))
    order = [first]
    left.remove(first)
    while left:
        seen = {c for i in order for c in chain.columns_of(i)}

        def rank(i: int, seen: set[int] = seen) -> tuple[bool, float, int]:
            mine = set(chain.columns_of(i))
            connected = any(
                columns(c) <= seen | mine and columns(c) & mine and columns(c) & seen
                for c in chain.conditions
            )
            return not connected, costs.node(chain.inputs[i]).rows, i

        nearest = min(left, key=rank)
        order.append(nearest)
        left.remove(nearest)
    return order


def _total(node: Node, costs: Costs) -> float:
    e = costs.node(node)
    return Cost(e.rate, e.state_rows, e.work).total
