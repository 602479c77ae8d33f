"""Inner join of two windows: by keys, by an inequality, or of all with all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.delta import MIN_TS, Delta, Ints, Step, concat, empty
from penstock.kernels import join as kernel
from penstock.kernels import ordered
from penstock.kernels.buffers import ordered as sortable
from penstock.kernels.buffers import validity
from penstock.kernels.intern import Interner
from penstock.kernels.ring import storable
from penstock.operators.base import NOTHING, StateSize
from penstock.operators.join_ring import JoinRing
from penstock.plan.expr import Call, Expr, conjunction, conjuncts, is_pure
from penstock.plan.nodes import Join
from penstock.plan.rules.scope import shift, side_of
from penstock.types import DataType, Kind

_OPERATORS = {
    "<": ordered.LESS,
    "<=": ordered.LESS_EQUAL,
    ">": ordered.GREATER,
    ">=": ordered.GREATER_EQUAL,
}
_PIECE = 16_384
"""Rows of an input that go through the walk at a time: the ring must hold them besides the rows of the window."""
_MOST_PAIRS = 1 << 17
_NO_CODES = np.empty(64, np.int32)


def supports(node: Join, left_fifo: bool, right_fifo: bool, *, ends: bool = False) -> bool:
    """Whether ``FastJoin`` can do it: an inner join of rows that leave in the order they entered, or say their end.

    A residual with a user's function is left to the operator that evaluates it row by row.
    """
    return (
        node.kind == "inner"
        and (ends or (left_fifo and right_fifo))
        and (node.residual is None or is_pure(node.residual))
        and all(a.type == b.type for a, b in node.keys)
        and all(storable(f.type) for f in node.schema)
    )
