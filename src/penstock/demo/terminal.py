"""The demo on a terminal: a list of what is to come, then a live view on a screen of its own, then the summary."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from penstock.demo import view
from penstock.demo.snapshot import Snapshot


class Terminal:
    """Shows snapshots as ``view`` draws them."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)

    @property
    def is_able(self) -> bool:
        """Whether it can show more than lines: also characters beyond ASCII."""
        console = self._console
        return console.is_terminal and not console.is_dumb_terminal and not console.options.ascii_only

    def introduce(self, abouts: Sequence[tuple[str, str, str]]) -> None:
        """The queries in words."""
        self._console.print(view.introduction(abouts))

    @contextmanager
    def busy(self, what: str, done: str) -> Iterator[None]:
        """While something takes its time: what it is and how long it has taken, and in the end that it is done."""
        began = time.monotonic()
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as progress:
            progress.add_task(what, total=None)
            yield
        self._console.print(Text(f"✓ {done}: {time.monotonic() - began:.1f} s", "dim"))

    @contextmanager
    def live(self) -> Iterator[Callable[[Snapshot], object]]:
        """Something to call with snapshots; the last one is gone with the screen."""
        with Live(console=self._console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            yield lambda snapshot: live.update(view.View(snapshot), refresh=True)

    def summarize(self, snapshot: Snapshot) -> None:
        """The end."""
        self._console.print(view.summary(snapshot))
