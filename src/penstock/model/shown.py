"""How things are shown by IPython: as text on a terminal, and as HTML by whoever ``use`` names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Printer(Protocol):
    """The part of IPython's pretty printer that is needed."""

    def text(self, text: str) -> None:
        """Write a text."""


class Shows(Protocol):
    """What shows things in notebooks."""

    def html(self, thing: object) -> str:
        """A thing as HTML."""

    def watch(self, query: object, seconds: float, interval: float) -> None:
        """Show a query and keep that up to date."""


_shows: list[Callable[[], Shows]] = []
"""At most one: what gives the one in use, when somebody looks."""


def use(shows: Callable[[], Shows]) -> None:
    """Let this show things in notebooks."""
    _shows[:] = [shows]


def as_text(self: object, printer: Printer, cycle: bool) -> None:
    """To be the method ``_repr_pretty_`` of a class: IPython shows its text, not what would make it again."""
    printer.text(str(self))


def as_html(self: object) -> str:
    """To be the method ``_repr_html_`` of a class."""
    return _shows[0]().html(self)


def watch(query: object, seconds: float, interval: float) -> None:
    """Show a query in a notebook and keep that up to date."""
    _shows[0]().watch(query, seconds, interval)
