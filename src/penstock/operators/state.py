"""Saving and loading what operators remember.

State is saved as *pieces*: immutable columnar tables under names that an operator never uses twice. A save lists all
pieces that make up the state now and carries the tables of only those that were not in an earlier save, so it costs
what is new since then. What is small and changes as a whole (counters, bounds) is ``meta``, plain JSON values.

A query's state is a mapping from the path of each operator in its program to what it saved. Where the pieces are
kept, and for how long, is the business of ``penstock.state``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True)
class Piece:
    """A part of an operator's state. ``table`` is None where an earlier save had it."""

    name: str
    table: pa.Table | None = None


@dataclass(frozen=True)
class Saved:
    """What an operator remembers: ``pieces`` in the order in which ``load`` wants them."""

    meta: Mapping[str, Json] = field(default_factory=dict)
    pieces: tuple[Piece, ...] = ()


class Stateful(Protocol):
    """An operator whose state can be saved and loaded."""

    def save(self) -> Saved:
        """The state now; everything in it counts as saved from here on."""

    def load(self, meta: Mapping[str, Json], tables: Mapping[str, pa.Table]) -> None:
        """Take over a saved state; ``tables`` by name of the piece, in the order of the save.

        Called on a fresh operator. The pieces count as saved: the next save lists them without their tables. The tables
        may be memory-mapped: an operator must not change them, and should read them only when it needs to.
        """


State = dict[str, Saved]
"""The state of a program, by path of the operator: ``0/window``, ``stream 7/2/join`` …"""
