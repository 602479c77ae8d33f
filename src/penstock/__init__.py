"""Penstock: continuous queries over data streams, in CQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.database.database import Database, connect
from penstock.database.query import Query
from penstock.model import shown
from penstock.model.errors import (
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
    ResultsGone,
    SpillError,
    StateError,
    StorageError,
)
from penstock.model.version import VERSION

if TYPE_CHECKING:
    from types import ModuleType

    from IPython.core.interactiveshell import InteractiveShell

__version__ = VERSION

_PUBLIC = (
    BindError, BufferFullError, CatalogError, CheckpointError, CqlSyntaxError, Database, EngineError, InputError,
    PenstockError, PlanError, Query, QueryFailed, ResultsGone, SpillError, StateError, StorageError,
)  # fmt: skip
__all__ = [
    "BindError", "BufferFullError", "CatalogError", "CheckpointError", "CqlSyntaxError", "Database", "EngineError",
    "InputError", "PenstockError", "PlanError", "Query", "QueryFailed", "ResultsGone", "SpillError", "StateError",
    "StorageError",
    "connect",
]  # fmt: skip

for _public in _PUBLIC:
    _public.__module__ = __name__  # as users know them: in tracebacks, and in help()


def _notebook() -> ModuleType:
    from penstock.notebook import showing

    return showing


shown.use(_notebook)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """``%load_ext penstock``: the magics ``%cql`` and ``%%cql``, and tables that notebooks show as such."""
    from penstock.notebook.magic import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """``%unload_ext penstock``."""
    from penstock.notebook.magic import unload

    unload(shell)
