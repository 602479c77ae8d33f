"""What ``model.shown`` asks for: things as HTML, and queries that are kept up to date."""

from __future__ import annotations

from penstock.database.query import Query
from penstock.notebook import live
from penstock.notebook.html import of


def html(thing: object) -> str:
    """A thing as HTML."""
    return of(thing)


def watch(query: object, seconds: float, interval: float) -> None:
    """Show a query and keep that up to date."""
    assert isinstance(query, Query), "only queries have this"
    live.watch(query, seconds=seconds, interval=interval)
