"""How much of what could be tried one run tries: a share by default, all of it with ``PENSTOCK_EXAMPLES=1``."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")

SHARE = float(os.environ.get("PENSTOCK_EXAMPLES", "0.25"))
"""Of the examples that a generated test may have; ``make fuzz`` has them all."""
SEED = int(os.environ.setdefault("PENSTOCK_SEED", str(secrets.randbelow(2**32))))
"""What ``tests.generated.test_exploring`` begins from: new in every run, and the same in all processes of a run."""


def examples(full: int) -> int:
    """For ``max_examples``: the share of a full number of examples that this run has."""
    return max(1, round(full * SHARE))


def paired(one: Iterable[A], other: Sequence[B]) -> list[tuple[A, B]]:
    """Each of one with each of the other; with less than all examples, with one of the other in turn."""
    if SHARE >= 1:
        return [(a, b) for a in one for b in other]
    return [(a, other[i % len(other)]) for i, a in enumerate(one)]
