"""A shell of IPython in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


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
        publisher = CapturingDisplayPublisher()
        before, self.shell.display_pub = self.shell.display_pub, publisher
        try:
            done = self.shell.run_cell(cell)
        finally:
            self.shell.display_pub = before
        self.shown = list(publisher.outputs)
        self.error = done.error_before_exec or done.error_in_exec
        return done.result


@pytest.fixture
def cells() -> Iterator[Cells]:
    InteractiveShell.clear_instance()
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    found = Cells(shell)
    found.run("%load_ext penstock")
    assert found.error is None
    yield found
    found.run("%unload_ext penstock")
    for value in list(found.variables.values()):
        if type(value).__name__ == "Database":
            value.close()
    InteractiveShell.clear_instance()
