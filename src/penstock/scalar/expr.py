"""Bound scalar expressions: typed, resolved, independent of the text they came from.

A ``Column`` refers to its input's schema by position. Everything that computes is a ``Call`` by the
canonical name of its function; ``scalar.py`` says what each name means on one row. Canonical names of
what has syntax of its own:

    and or not  = <> < <= > >=  is_null is_not_distinct  in (needle, item, …)  like (text, pattern[, escape])
    + - * / div % neg  ||  coalesce nullif
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Literal as OneOf

from penstock.model.types import BOOLEAN, DataType


@dataclass(frozen=True)
class Column:
    """The value at a position of the input row. The name is for people only."""

    index: int
    type: DataType
    name: str = field(default="", compare=False)


@dataclass(frozen=True)
class Literal:
    """A constant; ``value`` is a plain Python value as ``types`` describes, None for NULL."""

    value: object
    type: DataType


@dataclass(frozen=True)
class Call:
    """A built-in function applied to arguments."""

    function: str
    args: tuple[Expr, ...]
    type: DataType


@dataclass(frozen=True)
class UserCall:
    """A Python function that the user registered under this name."""

    function: str
    args: tuple[Expr, ...]
    type: DataType


@dataclass(frozen=True)
class Case:
    """The result of the first branch whose condition is TRUE, else ``otherwise``."""

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr
    type: DataType


@dataclass(frozen=True)
class Cast:
    """The argument in another type; ``safe`` (TRY_CAST) makes a failure NULL without counting it.

    ``zone``: of the clock that a text or a day tells, where one of the types is TIMESTAMP.
    """

    arg: Expr
    type: DataType
    safe: bool = False
    zone: str = "UTC"


@dataclass(frozen=True)
class WindowBound:
    """``window_start`` or ``window_end`` of the window being answered."""

    which: OneOf["start", "end"]
    type: DataType


Expr = Column | Literal | Call | UserCall | Case | Cast | WindowBound

_CHAIN = 32
"""Parts up to which a chain of AND or OR leans to the left."""
_FEW = 64
"""Conditions up to which each gets a filter of its own."""
TRUE = Literal(True, BOOLEAN)
FALSE = Literal(False, BOOLEAN)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct arguments of an expression."""
    match expr:
        case Call() | UserCall():
            return expr.args
        case Case(branches, otherwise, _):
            return (*(e for branch in branches for e in branch), otherwise)
        case Cast(arg, _, _):
            return (arg,)
    return ()


def with_children(expr: Expr, args: tuple[Expr, ...]) -> Expr:
    """The same expression over other arguments, given in the order of ``children``."""
    match expr:
        case Call() | UserCall():
            return replace(expr, args=args)
        case Case():
            pairs = tuple((args[i], args[i + 1]) for i in range(0, len(args) - 1, 2))
            return replace(expr, branches=pairs, otherwise=args[-1])
        case Cast():
            return replace(expr, arg=args[0])
    return expr


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything below it, parents first."""
    waiting = [expr]
    while waiting:
        expr = waiting.pop()
        yield expr
        waiting.extend(reversed(children(expr)))


def transform(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Apply ``change`` to every part, children first."""
    args = children(expr)
    if args:
        changed = tuple(transform(a, change) for a in args)
        if changed != args:
            expr = with_children(expr, changed)
    return change(expr)


def columns(expr: Expr) -> frozenset[int]:
    """The positions of the input row that an expression reads."""
    return frozenset(e.index for e in walk(expr) if isinstance(e, Column))


def remap(expr: Expr, positions: dict[int, int] | Callable[[int], int]) -> Expr:
    """The expression reading its columns from other positions."""
    move = positions if callable(positions) else positions.__getitem__

    def change(e: Expr) -> Expr:
        return replace(e, index=move(e.index)) if isinstance(e, Column) else e

    return transform(expr, change)


def substitute(expr: Expr, exprs: tuple[Expr, ...]) -> Expr:
    """The expression with each column replaced by the expression that computes it."""
    return transform(expr, lambda e: exprs[e.index] if isinstance(e, Column) else e)


def conjuncts(expr: Expr | None) -> list[Expr]:
    """The parts of a condition that are ANDed; TRUE and None have none."""
    if expr is None or expr == TRUE:
        return []
    if isinstance(expr, Call) and expr.function == "and":
        return [part for arg in expr.args for part in conjuncts(arg)]
    return [expr]


def few_conjuncts(expr: Expr) -> list[Expr]:
    """The parts of a condition that are ANDed; where there are very many, groups of them that stay together."""
    parts = conjuncts(expr)
    if len(parts) <= _FEW:
        return parts
    # A group is too large to be taken apart again.
    size = max(_FEW + 1, -(-len(parts) // _FEW))
    groups = (conjunction(parts[i : i + size]) for i in range(0, len(parts), size))
    return [group for group in groups if group is not None]


def conjunction(parts: list[Expr]) -> Expr | None:
    """All parts ANDed, left to right; None where there are none."""
    return in_pairs(parts, lambda a, b: Call("and", (a, b), BOOLEAN)) if parts else None


def in_pairs(parts: Sequence[Expr], join: Callable[[Expr, Expr], Expr]) -> Expr:
    """All parts joined, from left to right; many of them in halves, so that the expression is not deep."""
    if len(parts) > _CHAIN:
        half = len(parts) // 2
        return join(in_pairs(parts[:half], join), in_pairs(parts[half:], join))
    return reduce(join, parts)


def is_pure(expr: Expr) -> bool:
    """False where evaluating twice, or not at all, could be noticed: a user's Python function."""
    return not any(isinstance(e, UserCall) for e in walk(expr))
