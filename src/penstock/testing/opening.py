"""Databases for tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from penstock.connecting import connect as open_connection
from penstock.database.database import Database
from penstock.testing.clock import Clock


def connect(
    path: str | Path | None = None, *, engine: str | None = None, clock: Clock | None = None, **settings: Any
) -> Database:
    """Like ``penstock.connect``, with a simulated clock.

    The engine is ``local`` where neither you nor the environment variable PENSTOCK_ENGINE names one. Without a
    ``clock`` of yours there is a new one, in ``db.clock``.
    """
    if engine is None:
        engine = os.environ.get("PENSTOCK_ENGINE") or "local"
    return open_connection(path, engine=engine, clock=clock or Clock(), **settings)
