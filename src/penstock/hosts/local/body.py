"""What a program's body is: it turns released inputs into answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.delta import Arrivals, Delta, Instant
from penstock.operators.base import StateSize
from penstock.operators.state import LoadedState, State


@dataclass(slots=True, eq=False)
class Feed:
    """Everything of all inputs before ``frontier`` that has not been fed before, by position of the source.

    ``closed_at``: once the inputs that decide are closed, the furthest instant they had named before.
    """

    frontier: Instant
    streams: Mapping[int, Arrivals]
    relations: Mapping[int, Delta]
    closed_at: float | None


class Body(Protocol):
    """The operators of one query."""

    @property
    def deciding(self) -> tuple[int, ...]:
        """Positions of the sources that decide when it is over; empty: all streams."""

    @property
    def ended(self) -> bool:
        """No answer can come, whatever arrives."""

    @property
    def last_window(self) -> float | None:
        """The instant of the last bounded window answered; None where there are no bounded windows."""

    def next_instant(self, closed_at: float | None) -> Instant | None:
        """When a bounded window ends next."""

    def step(self, feed: Feed) -> list[Delta]:
        """The answers that follow from the feed."""

    def save(self) -> State:
        """What is remembered, by path."""

    def load(self, state: LoadedState) -> None:
        """Go on from what a body of the same query saved."""

    def catch_up(self, state: LoadedState) -> None:
        """Go on from a later state; see ``operators.state.Stateful``."""

    def sizes(self) -> dict[str, StateSize]:
        """What is remembered, by operator."""
