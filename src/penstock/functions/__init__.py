"""Which functions exist, what they take and what they give.

``resolve`` types a call of a scalar function or operator, ``resolve_aggregate`` one of an aggregate. Both
insert the implicit conversions, so what they return says exactly what is computed. ``SCALARS`` and
``AGGREGATES`` describe what users can call.

Owns: which functions users can call, their types and conversions.
Must not know: how they are computed. Enter at: ``resolve``, ``SCALARS``, ``AGGREGATES``.
"""

from penstock.functions.aggregate import AGGREGATES, is_aggregate, resolve_aggregate
from penstock.functions.coerce import case, cast, coerce, convert, how_to_convert, unify
from penstock.functions.foreign import instead, is_foreign, window_of
from penstock.functions.scalar import ELSEWHERE, SCALARS, is_scalar, names, resolve
from penstock.functions.signature import Function
from penstock.functions.zones import in_zone, why_not

__all__ = [
    "AGGREGATES",
    "ELSEWHERE",
    "SCALARS",
    "Function",
    "case",
    "cast",
    "coerce",
    "convert",
    "how_to_convert",
    "in_zone",
    "instead",
    "is_aggregate",
    "is_foreign",
    "is_scalar",
    "names",
    "resolve",
    "resolve_aggregate",
    "unify",
    "why_not",
    "window_of",
]
