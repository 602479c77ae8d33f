"""What evaluating needs besides the row, and what happens when a row fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from penstock.model.errors import QueryFailed


class RowError(Exception):
    """A value cannot be computed on this row: division by zero, overflow, a bad cast, a bad date."""


@dataclass
class Context:
    """The surroundings of an evaluation; ``failures`` and ``last_failure`` are written by it.

    ``window``: start and end, in ticks or row numbers, of the bounded window being answered.
    ``functions``: the user's Python functions by name.
    ``strict``: a failing row raises instead of yielding NULL.
    """

    window: tuple[int, int] | None = None
    functions: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    strict: bool = False
    failures: int = 0
    last_failure: str | None = None

    def fail(self, message: str) -> object:
        """Count a failure, and give its value: NULL."""
        self.failures += 1
        self.last_failure = message
        if self.strict:
            raise QueryFailed(message, hint="without `strict = true` the value would be NULL")
        return None
