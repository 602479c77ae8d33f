"""How much of the generated tests one run does."""

from __future__ import annotations

import os

SHARE = float(os.environ.get("PENSTOCK_EXAMPLES", "0.5"))
"""Of the examples that a generated test may have; ``make fuzz`` has them all."""


def examples(full: int) -> int:
    """For ``max_examples``: the share of a full number of examples that this run has."""
    return max(1, round(full * SHARE))
