"""Interleavings of workers and the thread that changes a graph, chosen by a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import penstock
from penstock.database.database import core_of
from penstock.hosts.local.host import LocalHost
from penstock.runtime.control import Control


@contextmanager
def working_after_pauses(db: penstock.Database, begins: Callable[[], object] = lambda: None) -> Iterator[None]:
    """After every pause the workers work off all that they can before the thread that paused them does anything else.
    ``begins`` is called before each pause."""
    host = core_of(db).host
    if not isinstance(host, LocalHost):
        yield
        return
    runtime, plain = host.runtime, Control.paused

    def paused(control: Control) -> AbstractContextManager[None]:
        return after(control) if control is runtime._control else plain(control)

    @contextmanager
    def after(control: Control) -> Iterator[None]:
        begins()
        with plain(control):
            yield
        runtime.settle()  # returns at once where the pause is part of another

    with patch.object(Control, "paused", paused):
        yield
