"""Interleavings of workers and the thread that changes a graph, chosen by a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import penstock
from penstock.database.database import core_of
from penstock.hosts.local.host import LocalHost
from penstock.runtime.control import Control, Halting
from penstock.runtime.placement import PLACEMENTS, Placement, PlacementGraph


@contextmanager
def working_after_pauses(db: penstock.Database, begins: Callable[[], object] = lambda: None) -> Iterator[None]:
    """After every pause the workers work off all that they can before the thread that paused them does anything else.
    ``begins`` is called before each pause."""
    host = core_of(db).host
    if not isinstance(host, LocalHost):
        yield
        return
    runtime, plain = host.runtime, Control.paused

    def paused(control: Control, some: Iterable[Halting] | None = None) -> AbstractContextManager[None]:
        return after(control, some) if control is runtime._control else plain(control, some)

    @contextmanager
    def after(control: Control, some: Iterable[Halting] | None) -> Iterator[None]:
        begins()
        with plain(control, some):
            yield
        runtime.settle()  # returns at once where the pause is part of another

    with patch.object(Control, "paused", paused):
        yield


def place(db: penstock.Database, numbers: Sequence[int]) -> None:
    """Have other virtual operators from now on, whatever has been measured: operators are in those of these numbers in
    turn."""
    core = core_of(db)

    def placement(graph: PlacementGraph) -> Placement:
        return {id: numbers[id % len(numbers)] for id in graph.order}

    if isinstance(host := core.host, LocalHost) and host.runtime.settings.has_threads:
        with core.lock, patch.dict(PLACEMENTS, {host.runtime.settings.placement: placement}):
            host._see()
            host._place()
