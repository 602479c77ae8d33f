"""Penstock: continuous queries over data streams, in CQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

__all__ = [
    "BindError", "BufferFullError", "CatalogError", "CheckpointError", "CqlSyntaxError", "Database", "EngineError",
    "InputError", "PenstockError", "PlanError", "Query", "QueryFailed", "SpillError", "StateError", "connect",
]  # fmt: skip


def load_ipython_extension(shell: InteractiveShell) -> None:
    """``%load_ext penstock``: the magics ``%cql`` and ``%%cql``, and tables that notebooks show as such."""
    from penstock.notebook.magic import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """``%unload_ext penstock``."""
    from penstock.notebook.magic import unload

    unload(shell)
