"""Spans: what was done for which request, and how long each step took.

    request ──▶ statement ──▶ plan
            └─▶ push ──▶ evaluation, or on Spark log and the micro-batch that takes the rows ──▶ answer

Off, unless a ``Tracer`` is set: then ``span`` gives one empty block for all, and nothing is imported or remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

Context = object
"""Where a span stands, for others that follow from it."""


class Tracer(Protocol):
    """Writes spans down; ``penstock.server.tracing`` does it with OpenTelemetry."""

    def span(
        self, name: str, facts: Mapping[str, object], parent: Context | None, seconds: float
    ) -> AbstractContextManager[None]:
        """A block that is a span, below ``parent`` or the span that it stands in; it began ``seconds`` ago."""

    def current(self) -> Context | None:
        """The span that the caller stands in."""

    def id(self) -> str | None:
        """The number of its trace."""


_NOTHING: AbstractContextManager[None] = nullcontext()
_tracer: Tracer | None = None


def trace(tracer: Tracer | None) -> None:
    """Write spans of this process down from now on, or no more."""
    global _tracer
    _tracer = tracer


def span(
    name: str, *, parent: Context | None = None, seconds: float = 0.0, **facts: object
) -> AbstractContextManager[None]:
    """A block that is a span."""
    return _NOTHING if _tracer is None else _tracer.span(name, facts, parent, seconds)


def current() -> Context | None:
    """The span that the caller stands in; None where nobody watches."""
    return None if _tracer is None else _tracer.current()


def trace_id() -> str | None:
    """The number of the trace that the caller stands in."""
    return None if _tracer is None else _tracer.id()
