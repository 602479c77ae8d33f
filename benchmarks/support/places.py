"""Where the clone is, and what a process that is started must find on its path."""

from __future__ import annotations

import os
from pathlib import Path

import penstock

ROOT = Path(__file__).resolve().parents[2]
"""The clone of the project: it has ``benchmarks``, ``experiments`` and ``src``."""


def python_path(*first: Path) -> str:
    """``PYTHONPATH`` for a process: these folders, the clone, the package of this process, what was set before."""
    source = Path(penstock.__file__).resolve().parents[1]
    found = [*map(str, (*first, ROOT, source)), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(path for path in found if path)
