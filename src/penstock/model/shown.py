"""How things are shown by IPython where there is no HTML: on a terminal."""

from __future__ import annotations

from typing import Protocol


class Printer(Protocol):
    """The part of IPython's pretty printer that is needed."""

    def text(self, text: str) -> None:
        """Write a text."""


def as_text(self: object, printer: Printer, cycle: bool) -> None:
    """To be the method ``_repr_pretty_`` of a class: IPython shows its text, not what would make it again."""
    printer.text(str(self))
