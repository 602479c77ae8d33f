"""What every operator is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.model.delta import Arrivals, Delta, Step


@dataclass(frozen=True)
class StateSize:
    """How much an operator remembers."""

    rows: int
    bytes: int

    def __add__(self, other: StateSize) -> StateSize:
        return StateSize(self.rows + other.rows, self.bytes + other.bytes)


NOTHING = StateSize(0, 0)


class Operator(Protocol):
    """Changes in, changes out. ``inputs`` are all complete before ``step.frontier``, and so is the output."""

    def process(self, inputs: Sequence[Delta], step: Step) -> Delta:
        """Take the changes of all inputs in; give the changes of the result."""

    def size(self) -> StateSize:
        """What is remembered now."""


class WindowOperator(Protocol):
    """Stream to relation: arrivals in, changes out, also those that time alone brings before the frontier."""

    def process(self, arrivals: Arrivals, step: Step) -> Delta:
        """Take arrivals in (all before the frontier); give rows that enter and leave before it."""

    def size(self) -> StateSize:
        """What is remembered now."""
