"""A shell of IPython in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from penstock.database.database import Database


class Cells:
    """Runs cells, and keeps what they show."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        self.shown: list[dict[str, Any]] = []
        self.error: BaseException | None = None

    @property
    def variables(self) -> dict[str, Any]:
        names: dict[str, Any] = self.shell.user_ns
        return names

    def run(self, cell: str) -> Any:
        """What the cell gives; ``shown``: what it displays, the value at its end not among it."""
        publisher = CapturingDisplayPublisher()  # type: ignore[no-untyped-call]
        before, self.shell.display_pub = self.shell.display_pub, publisher
        try:
            done = self.shell.run_cell(cell)  # type: ignore[no-untyped-call]
        finally:
            self.shell.display_pub = before
        self.shown = list(publisher.outputs)
        self.error = done.error_before_exec or done.error_in_exec
        return done.result


@contextmanager
def shell() -> Iterator[Cells]:
    """A new shell; the databases that its cells have made are closed at its end."""
    InteractiveShell.clear_instance()
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    found = Cells(InteractiveShell.instance(config=config))
    try:
        yield found
    finally:
        for value in list(found.variables.values()):
            if isinstance(value, Database):
                value.close()
        found.run("%unload_ext penstock")
        InteractiveShell.clear_instance()
