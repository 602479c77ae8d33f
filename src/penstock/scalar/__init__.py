"""What every scalar expression means on one row of plain Python values.

This is the slow truth: engines must give the same values. ``types`` says which Python value stands for
which CQL value.

Owns: expressions as data, and what each gives on one row of plain Python values.
Must not know: plans, batches, engines. Enter at: ``evaluate``.
"""

from penstock.model.values import to_arrow, to_python
from penstock.scalar.context import Context, RowError
from penstock.scalar.evaluate import BUILTINS, evaluate, fold
from penstock.scalar.order import compare, hashable, order_key

__all__ = [
    "BUILTINS",
    "Context",
    "RowError",
    "compare",
    "evaluate",
    "fold",
    "hashable",
    "order_key",
    "to_arrow",
    "to_python",
]
