"""How time that passes is shown to somebody who waits."""

from __future__ import annotations

STEP = 15.0
"""Seconds between two lines where nobody watches a terminal."""


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
