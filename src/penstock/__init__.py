"""Penstock: continuous queries over data streams, in CQL."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penstock.model import shown
from penstock.model.errors import (
    AccessDenied,
    BindError,
    BufferFullError,
    CatalogError,
    CheckpointError,
    CqlSyntaxError,
    EngineError,
    InputError,
    LimitExceeded,
    LoginFailed,
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

    from penstock.connecting import connect
    from penstock.database.database import Database
    from penstock.database.query import Query

__version__ = VERSION

_PUBLIC = (
    AccessDenied, BindError, BufferFullError, CatalogError, CheckpointError, CqlSyntaxError, EngineError, InputError,
    LimitExceeded, LoginFailed, PenstockError, PlanError, QueryFailed, ResultsGone, SpillError, StateError,
    StorageError,
)  # fmt: skip
_LATER = {
    "Database": "penstock.database.database", "Query": "penstock.database.query",
    "connect": "penstock.connecting",
}  # fmt: skip
"""What takes long to import and is imported when it is first used: Spark starts processes that never do."""
__all__ = [
    "AccessDenied", "BindError", "BufferFullError", "CatalogError", "CheckpointError", "CqlSyntaxError", "Database",
    "EngineError", "InputError", "LimitExceeded", "LoginFailed", "PenstockError", "PlanError", "Query", "QueryFailed",
    "ResultsGone", "SpillError", "StateError", "StorageError",
    "connect",
]  # fmt: skip

for _public in _PUBLIC:
    _public.__module__ = __name__  # as users know them: in tracebacks, and in help()


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_LATER[name]), name)
    if isinstance(found, type):
        found.__module__ = __name__
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


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
