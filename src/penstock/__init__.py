"""Penstock: continuous queries over data streams, in CQL."""

from penstock.database import Database, connect
from penstock.errors import (
    BindError,
    BufferFullError,
    CatalogError,
    CheckpointError,
    CqlSyntaxError,
    EngineError,
    InputError,
    PenstockError,
    PlanError,
    QueryFailed,
    SpillError,
    StateError,
)
from penstock.query import Query

__version__ = "0.1.0"

__all__ = [
    "BindError", "BufferFullError", "CatalogError", "CheckpointError", "CqlSyntaxError", "Database", "EngineError",
    "InputError", "PenstockError", "PlanError", "Query", "QueryFailed", "SpillError", "StateError", "connect",
]  # fmt: skip
