"""Saving and loading what operators remember.

State is saved as *pieces*: immutable columnar tables under names that an operator never uses twice. A save lists all
pieces that make up the state now and carries the tables of only those that were not in an earlier save, so it costs
what is new since then. A table may be made later, when it is written: under the database's lock a save then only notes
what there is. Catching up from an earlier state to a later one costs the same. What is small and changes as a
whole (counters, bounds) is ``meta``, plain JSON values.

A query's state is a mapping from the path of each operator in its program to what it saved. Where the pieces are
kept, and for how long, is the business of ``storage.versions``; how operators cut their state into pieces is that of
``operators.pieces``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeGuard

import pyarrow as pa

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Meta = Mapping[str, Any]
"""The JSON values of an operator; it knows what it put in."""
Tables = Mapping[str, pa.Table]
"""Tables by name of the piece; reading one may open a file."""


Content: TypeAlias = pa.Table | Callable[[], pa.Table]
"""A table, or what makes it: only from objects that never change, or from a picture of objects that do. It is called
without the database's lock, by the thread that writes."""


@dataclass(frozen=True)
class Piece:
    """A part of an operator's state. ``content`` is None where an earlier save had it."""

    name: str
    content: Content | None = None

    @property
    def is_new(self) -> bool:
        """Whether no earlier save had it."""
        return self.content is not None

    @property
    def table(self) -> pa.Table | None:
        """The table, made now if it has not been; None where an earlier save had it."""
        return self.content() if callable(self.content) else self.content


@dataclass(frozen=True)
class Saved:
    """What an operator remembers: ``pieces`` in the order in which ``load`` wants them."""

    meta: Meta = field(default_factory=dict)
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class Loaded:
    """What an operator had saved."""

    meta: Meta
    tables: Tables

    def part(self, name: str) -> Loaded:
        """What ``together`` put in under this name."""
        return Loaded(self.meta[name], _Under(self.tables, f"{name}."))


class Stateful(Protocol):
    """An operator whose state can be saved and loaded."""

    def save(self) -> Saved:
        """The state now; everything in it counts as saved from here on.

        Tables may be asked for later, by another thread, while the operator goes on: they are of the state now.
        """

    def load(self, state: Loaded) -> None:
        """Take over a saved state.

        Called on a fresh operator. The pieces count as saved: the next save lists them without their tables. The tables
        may be memory-mapped: an operator must not change them, and should read them only when it needs to.
        """

    def catch_up(self, state: Loaded) -> None:
        """Become what a fresh operator would be that loads this state, at the cost of what has changed.

        Called on an operator whose last save, or load, is an earlier state that this one goes on from, and which
        has done nothing since.
        """


def is_stateful(operator: object) -> TypeGuard[Stateful]:
    """Whether an operator has something to save. (``isinstance`` takes fifty microseconds.)"""
    return hasattr(operator, "catch_up")


State = dict[str, Saved]
"""The state of a program, by path of the operator: ``leaf 0``, ``stream 7/stage 2`` …"""
LoadedState = Mapping[str, Loaded]


def together(**parts: Saved) -> Saved:
    """The state of an operator made of several parts; ``Loaded.part`` gives each back."""
    meta = {name: part.meta for name, part in parts.items()}
    pieces = [Piece(f"{name}.{p.name}", p.content) for name, part in parts.items() for p in part.pieces]
    return Saved(meta, tuple(pieces))


def with_meta(saved: Saved, **more: Json) -> Saved:
    """The same state with more JSON values."""
    return Saved({**saved.meta, **more}, saved.pieces)


def under(prefix: str, state: State) -> State:
    """The paths of a program inside another."""
    return {f"{prefix}/{path}": saved for path, saved in state.items()}


def below(prefix: str, state: LoadedState) -> LoadedState:
    """What ``under`` put in."""
    start = f"{prefix}/"
    return {path.removeprefix(start): loaded for path, loaded in state.items() if path.startswith(start)}


class _Under(Mapping[str, pa.Table]):
    """The tables whose names begin in one way, without that beginning."""

    def __init__(self, tables: Tables, prefix: str) -> None:
        self._tables, self._prefix = tables, prefix

    def __getitem__(self, name: str) -> pa.Table:
        return self._tables[self._prefix + name]

    def __iter__(self) -> Iterator[str]:
        return (n.removeprefix(self._prefix) for n in self._tables if n.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)
