"""What became of an operator that raised: where, on which element, with which traceback."""

from __future__ import annotations

import traceback
from collections.abc import Sequence

from penstock.graph.message import BEGIN, Data, cut
from penstock.graph.operators import Stateless
from penstock.graph.vertices import OperatorVertex
from penstock.model.errors import QueryFailed
from penstock.model.values import to_python


def located(error: Exception, vertex: OperatorVertex, inputs: Sequence[Data]) -> Exception:
    """The error, saying in which operator and on which element it came up."""
    element = _culprit(vertex, inputs)
    shown = "" if element is None else f" on {element}"
    if isinstance(error, MemoryError):
        size = vertex.size()
        error = QueryFailed(
            f"out of memory in operator {vertex.name}, which holds {size.rows:,} rows, {size.bytes:,} bytes",
            hint="use a smaller window, or fewer columns",
        )
    where = f"in operator {vertex.id} ({vertex.label}){shown}"
    trace = "".join(traceback.format_exception(error)).rstrip()
    error.add_note(where)
    error.add_note(trace)
    return error


def _culprit(vertex: OperatorVertex, inputs: Sequence[Data]) -> str | None:
    """The first element that makes a vertex without state fail; of others, where the batch lies."""
    data = next((d for d in inputs if len(d)), None)
    if data is None:
        return None
    if isinstance(vertex, Stateless):
        low, high = 0, len(data)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _fails(vertex, cut(data, low, middle)) else (middle, high)
        return f"the element {_shown(data, low)}"
    if len(data) == 1:
        return f"the element {_shown(data, 0)}"
    return f"one of {len(data):,} rows from {_shown(data, 0)} to {_shown(data, len(data) - 1)}"


def _fails(vertex: Stateless, data: Data) -> bool:
    errors = vertex.errors
    before = None if errors is None else (errors.failures, errors.last_failure)
    try:
        vertex.work((data,), BEGIN)
    except Exception:
        return True
    finally:
        if errors is not None and before is not None:
            errors.failures, errors.last_failure = before
    return False


def _shown(data: Data, row: int) -> str:
    values = (to_python(c.slice(row, 1), f.type)[0] for c, f in zip(data.columns, data.schema, strict=True))
    named = ", ".join(f"{f.name}={v!r}" for f, v in zip(data.schema, values, strict=True))
    return f"({named}) at {int(data.ts[row])}"
