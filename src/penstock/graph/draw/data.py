"""The graph as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.graph.view import GraphView, MemoryView


def to_json(view: GraphView | MemoryView) -> dict[str, Any]:
    """A view as what ``json.dumps`` takes: the fields of the view under their names, in their order.

    A number that JSON does not have, such as the infinite capacity of a virtual operator to which nothing comes, is
    null.
    """
    plain: dict[str, Any] = _plain(view)
    return plain


def _plain(value: object) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
